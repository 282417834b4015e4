#include "trainer/data/served_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/url.h"

namespace imgd::data {
namespace {

constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// Where the kernel has no openat2 (before 5.6, or a sandbox): part by part, with no links at all.
int OpenStepByStep(int root, const std::string& path) {
  UniqueFd at(::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (size_t begin = 0; begin < path.size() && at.valid();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool last = end + 1 >= path.size();
    at = UniqueFd(
        ::openat(at.get(), part.c_str(), (last ? kFlags : O_PATH | O_DIRECTORY | O_CLOEXEC) | O_NOFOLLOW));
    if (last) return at.release();
    begin = end + 1;
  }
  return at.valid() ? ::openat(at.get(), ".", kFlags) : -1;
}

int OpenFile(int root, const std::string& path) {
  open_how how{};
  how.flags = kFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string& name = path.empty() ? "." : path;
  const long fd = ::syscall(SYS_openat2, root, name.c_str(), &how, sizeof how);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  return OpenStepByStep(root, path);
}

struct Entry {
  std::string name;
  struct stat status {};
};

std::vector<Entry> EntriesOf(const ServedFile& folder) {
  std::vector<Entry> entries;
  const int copy = ::openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = copy < 0 ? nullptr : ::fdopendir(copy);
  if (dir == nullptr) return entries;
  while (const dirent* one = ::readdir(dir)) {
    Entry entry{.name = one->d_name};
    if (entry.name.starts_with('.')) continue;
    if (::fstatat(folder.fd.get(), one->d_name, &entry.status, 0) != 0) continue;
    if (S_ISREG(entry.status.st_mode) || S_ISDIR(entry.status.st_mode)) entries.push_back(std::move(entry));
  }
  ::closedir(dir);
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

std::string Html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string HttpTime(const timespec& time) {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(time.tv_sec));
}

Result<ServedFile> OpenBelow(int root, const std::string& path) {
  std::string relative = path.substr(std::min<size_t>(path.size(), 1));
  ServedFile file{.fd = UniqueFd(OpenFile(root, relative))};
  struct stat status {};
  if (!file.fd.valid() || ::fstat(file.fd.get(), &status) != 0) {
    if (errno == EACCES) return Fail(ErrorCode::kPermissionDenied, "no permission to read {}", path);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO)
      return FailErrno(errno, fmt::format("cannot read {}", path));
    return Fail(ErrorCode::kNotFound, "no file {}", path);
  }
  file.is_folder = S_ISDIR(status.st_mode);
  if (!file.is_folder && !S_ISREG(status.st_mode))
    return Fail(ErrorCode::kNotFound, "{} is no plain file", path);
  if (!file.is_folder && path.ends_with('/')) return Fail(ErrorCode::kNotFound, "{} is no folder", path);
  file.size = static_cast<uint64_t>(status.st_size);
  file.changed = status.st_mtim;
  file.etag = fmt::format("\"{:x}-{:x}.{:x}\"", file.size, file.changed.tv_sec, file.changed.tv_nsec);
  return file;
}

std::string ListingJson(const ServedFile& folder) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [name, status] : EntriesOf(folder)) {
    const bool is_folder = S_ISDIR(status.st_mode);
    nlohmann::ordered_json one = {
        {"name", name}, {"type", is_folder ? "directory" : "file"}, {"mtime", HttpTime(status.st_mtim)}};
    if (!is_folder) one["size"] = static_cast<uint64_t>(status.st_size);
    list.push_back(std::move(one));
  }
  return list.dump(0, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ListingHtml(const ServedFile& folder, const std::string& path) {
  std::string page =
      fmt::format("<!doctype html><meta charset=utf-8><title>{0}</title><h1>{0}</h1><pre>\n", Html(path));
  if (path != "/") page += "<a href=\"../\">../</a>\n";
  for (const auto& [name, status] : EntriesOf(folder)) {
    const char* slash = S_ISDIR(status.st_mode) ? "/" : "";
    const std::string size = S_ISDIR(status.st_mode) ? "" : fmt::format("  {}", status.st_size);
    page +=
        fmt::format("<a href=\"./{}{}\">{}{}</a>{}\n", PercentEncode(name), slash, Html(name), slash, size);
  }
  return page + "</pre>\n";
}

}  // namespace imgd::data
