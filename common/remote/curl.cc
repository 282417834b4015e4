#include "common/remote/curl.h"

#include <dlfcn.h>

namespace imgd {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

Result<Curl> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  std::string missing = library == nullptr ? dlerror() : "";
  const auto find = [&](auto& function, const char* name) {
    void* const found = library == nullptr ? nullptr : dlsym(library, name);
    if (found == nullptr && missing.empty()) missing = fmt::format("it has no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  Curl curl{};
  find(curl.global_init, "curl_global_init");
  find(curl.easy_init, "curl_easy_init");
  find(curl.easy_reset, "curl_easy_reset");
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_cleanup, "curl_easy_cleanup");
  find(curl.easy_strerror, "curl_easy_strerror");
  find(curl.multi_init, "curl_multi_init");
  find(curl.multi_add_handle, "curl_multi_add_handle");
  find(curl.multi_remove_handle, "curl_multi_remove_handle");
  find(curl.multi_perform, "curl_multi_perform");
  find(curl.multi_info_read, "curl_multi_info_read");
  find(curl.multi_poll, "curl_multi_poll");
  find(curl.multi_wakeup, "curl_multi_wakeup");
  find(curl.multi_cleanup, "curl_multi_cleanup");
  find(curl.multi_strerror, "curl_multi_strerror");
  find(curl.slist_append, "curl_slist_append");
  find(curl.slist_free_all, "curl_slist_free_all");
  if (missing.empty()) {
    curl.global_init(CURL_GLOBAL_DEFAULT);
    return curl;
  }
  return tl::unexpected(
      Error{.code = ErrorCode::kFailedPrecondition,
            .message = fmt::format("HTTP needs {}, which can't be used: {}", kLibrary, missing),
            .hint = "install it; Debian's package is libcurl4"});
}

}  // namespace

const Result<Curl>& LoadCurl() {
  static const Result<Curl> curl = Load();
  return curl;
}

}  // namespace imgd
