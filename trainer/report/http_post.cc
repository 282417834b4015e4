#include "trainer/report/http_post.h"

#include <curl/curl.h>

#include <algorithm>

namespace imgd::report {
namespace {

constexpr size_t kMostAnswerBytes = size_t{1} << 20;

size_t TakeAnswer(char* data, size_t, size_t size, void* user) {
  auto& body = *static_cast<std::string*>(user);
  if (body.size() + size > kMostAnswerBytes) return 0;
  body.append(data, size);
  return size;
}

/// curl's list of header lines.
class HeaderLines {
 public:
  HeaderLines() = default;
  HeaderLines(const HeaderLines&) = delete;
  HeaderLines& operator=(const HeaderLines&) = delete;
  ~HeaderLines() { curl_slist_free_all(list_); }
  void Add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

tl::unexpected<Error> FailCurl(CURLcode code, const char* words) {
  Error error{.code = ErrorCode::kUnavailable, .message = *words != 0 ? words : curl_easy_strerror(code)};
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    error.code = ErrorCode::kFailedPrecondition;
    error.hint = "--report-ca FILE names the certificate to trust; imgd's own is ca.crt in its state folder";
  }
  return tl::unexpected(std::move(error));
}

}  // namespace

struct HttpPost::Handles {
  Handles() : multi(curl_multi_init()), easy(curl_easy_init()) {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }

  /// Until the transfer is over.
  Result<CURLcode> Drive(const std::stop_token& stop) const {
    const std::stop_callback wake(stop, [this] { curl_multi_wakeup(multi); });
    for (;;) {
      int running = 0;
      if (const CURLMcode done = curl_multi_perform(multi, &running); done != CURLM_OK)
        return Fail(ErrorCode::kUnavailable, "{}", curl_multi_strerror(done));
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
        if (message->msg == CURLMSG_DONE) return message->data.result;
      }
      if (stop.stop_requested()) return Fail(ErrorCode::kCancelled, "stopped");
      curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
  }

  CURLM* multi;  ///< keeps the connection
  CURL* easy;
};

HttpPost::HttpPost(Options options) : options_(std::move(options)) {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)once;
  handles_ = std::make_unique<Handles>();
}
HttpPost::~HttpPost() = default;

Result<PostAnswer> HttpPost::Post(const std::string& url, const std::string& body,
                                  const std::stop_token& stop) {
  CURL* const easy = handles_->easy;
  if (easy == nullptr || handles_->multi == nullptr)
    return Fail(ErrorCode::kResourceExhausted, "no memory for a connection");
  PostAnswer answer;
  char words[CURL_ERROR_SIZE] = "";
  HeaderLines headers;
  headers.Add("Content-Type: application/json");
  headers.Add("Accept: application/json");
  headers.Add("Expect:");
  headers.Add("Authorization: Bearer " + options_.token);
  const bool plain = url.starts_with("http:");
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, plain ? "http" : "https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  // The token must not go through a proxy in plain text.
  if (plain) curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "imgtrain");
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_limit.count()));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.limit.count()));
#if LIBCURL_VERSION_NUM >= 0x075700
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
  if (!options_.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_file.c_str());
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, words);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, TakeAnswer);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer.body);
  curl_multi_add_handle(handles_->multi, easy);
  const auto code = handles_->Drive(stop);
  curl_multi_remove_handle(handles_->multi, easy);
  if (!code) return tl::unexpected(code.error());
  if (*code != CURLE_OK) return FailCurl(*code, words);
  long status = 0;
  curl_off_t wait = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait);
  answer.status = static_cast<int>(status);
  answer.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(wait, 0, 60));
  return answer;
}

}  // namespace imgd::report
