#include "trainer/data/sources.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/json.h"
#include "common/remote/s3.h"
#include "common/sha256.h"
#include "common/url.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/remote_file.h"
#include "trainer/data/shard_cache.h"

namespace imgd::data {
namespace {

constexpr uint64_t kMostListingBytes = uint64_t{256} << 20;
constexpr size_t kMostSecretBytes = 64 << 10;
constexpr uint64_t kDefaultCacheBytes = uint64_t{256} << 30;

/// A header's value that a user chose.
class FixedAuthorization final : public Authorizer {
 public:
  explicit FixedAuthorization(std::string value) : value_(std::move(value)) {}
  Status Sign(HttpRequest& request) override {
    request.headers.emplace_back("authorization", value_);
    return {};
  }

 private:
  const std::string value_;
};

Result<std::string> ReadAuthorization(const std::string& file) {
  IMGD_ASSIGN(std::string value, ReadFile(file, kMostSecretBytes));
  while (!value.empty() && (value.back() == '\n' || value.back() == '\r' || value.back() == ' '))
    value.pop_back();
  if (value.starts_with("Authorization:")) value.erase(0, value.find_first_not_of(' ', 14));
  if (value.empty() || value.find_first_of("\r\n") != std::string::npos ||
      value.find('\0') != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument,
                "{} does not hold one line with the value of an Authorization header, such as 'Bearer TOKEN'",
                file);
  return value;
}

/// None of the small files that are read begins with a '<'.
bool IsWebPage(std::string_view text) {
  const size_t at = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return at != std::string_view::npos && text[at] == '<';
}

/// What nginx's autoindex_format json and `imgcli dataset serve` list.
Result<std::vector<RemoteEntry>> ParseListing(const std::string& text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return Fail(
        ErrorCode::kFailedPrecondition,
        "{} has no shards.json and does not list its files as JSON; name the shards by a pattern such as "
        "train-{{000000..000099}}.tar",
        name);
  }
  std::vector<RemoteEntry> entries;
  for (const auto& entry : json) {
    if (!entry.is_object() || entry.value("type", nlohmann::json()) != "file") continue;
    const auto file = entry.find("name");
    const auto size = entry.find("size");
    if (file == entry.end() || !file->is_string()) continue;
    RemoteEntry one{.name = file->get<std::string>()};
    if (size != entry.end()) one.bytes = WholeNumber<uint64_t>(*size).value_or(0);
    if (one.name.empty() || one.name.find('/') != std::string::npos || one.name.starts_with('.')) continue;
    entries.push_back(std::move(one));
  }
  std::ranges::sort(entries, {}, &RemoteEntry::name);
  return entries;
}

}  // namespace

Result<SourceSettings> SourceSettings::FromEnvironment(Environment env) {
  SourceSettings settings{.env = env ? std::move(env) : VariableOfProcess, .cache_bytes = kDefaultCacheBytes};
  const auto& get = settings.env;
  settings.http = HttpOptionsFrom(get);
  settings.authorization_file = get("IMGD_HTTP_AUTHORIZATION_FILE");
  settings.cache_folder = get("IMGD_CACHE_DIR");
  if (settings.cache_folder.empty()) {
    const std::string home = get("HOME");
    std::string caches = get("XDG_CACHE_HOME");
    if (caches.empty() && !home.empty()) caches = home + "/.cache";
    if (!caches.empty()) settings.cache_folder = caches + "/imgd/shards";
  }
  if (const std::string bytes = get("IMGD_CACHE_BYTES"); !bytes.empty()) {
    const auto parsed = std::from_chars(bytes.data(), bytes.data() + bytes.size(), settings.cache_bytes);
    if (parsed.ec != std::errc() || parsed.ptr != bytes.data() + bytes.size())
      return Fail(ErrorCode::kInvalidArgument,
                  "IMGD_CACHE_BYTES is '{}', which is no number of bytes (0: no cache)", bytes);
  }
  return settings;
}

namespace {
SourceSettings WithEnvironment(SourceSettings settings) {
  if (!settings.env) settings.env = [](const char*) { return std::string(); };
  return settings;
}
}  // namespace

class SourceOpener::Impl {
 public:
  explicit Impl(SourceSettings given)
      : settings(WithEnvironment(std::move(given))),
        client(std::make_shared<HttpClient>(settings.http)),
        s3(settings.env, client),
        pool(std::make_shared<FetchPool>(settings.connections)),
        ahead(std::make_shared<ReadAhead>(pool, settings.ahead_bytes)) {
    if (settings.cache_bytes > 0 && !settings.cache_folder.empty())
      cache = std::make_shared<ShardCache>(settings.cache_folder, settings.cache_bytes, settings.http.notice);
  }

  Result<RemoteObject> ObjectAt(const std::string& where) {
    IMGD_ASSIGN(Url url, ParseUrl(where));
    if (url.scheme == "s3") return s3.Object(url);
    RemoteObject object{.client = client, .url = url, .name = url.ForPeople()};
    if (!url.userinfo.empty()) {
      object.authorizer =
          std::make_shared<FixedAuthorization>(fmt::format("Basic {}", Base64(PercentDecode(url.userinfo))));
    } else if (!settings.authorization_file.empty()) {
      IMGD_ASSIGN(object.authorizer, FromFile());
    }
    return object;
  }

  SourceSettings settings;
  std::shared_ptr<HttpClient> client;
  S3 s3;
  std::shared_ptr<FetchPool> pool;
  std::shared_ptr<ReadAhead> ahead;
  std::shared_ptr<ShardCache> cache;  ///< null: nothing is kept

 private:
  /// Read once, when first needed.
  Result<std::shared_ptr<Authorizer>> FromFile() {
    const std::lock_guard lock(mutex_);
    if (!from_file_) {
      IMGD_ASSIGN(std::string value, ReadAuthorization(settings.authorization_file));
      from_file_ = std::make_shared<FixedAuthorization>(std::move(value));
    }
    return from_file_;
  }

  std::mutex mutex_;
  std::shared_ptr<Authorizer> from_file_;  ///< guarded by mutex_
};

SourceOpener::SourceOpener(SourceSettings settings) : impl_(std::make_shared<Impl>(std::move(settings))) {}
SourceOpener::~SourceOpener() = default;

const SourceSettings& SourceOpener::settings() const { return impl_->settings; }

Result<std::shared_ptr<Source>> SourceOpener::Open(const std::string& where,
                                                   std::optional<uint32_t> crc32c) const {
  if (!IsUrl(where)) return OpenFileSource(where);
  IMGD_ASSIGN(RemoteObject object, impl_->ObjectAt(where));
  IMGD_ASSIGN(auto file, RemoteFile::Open(std::move(object)));
  // What nobody can tell from an older one of that size is not kept.
  if (impl_->cache && (crc32c || !file->version().empty())) {
    if (auto entry = impl_->cache->Open(*file, crc32c))
      return std::make_shared<CachedSource>(std::move(file), impl_->cache, std::move(entry), impl_->pool);
  }
  return std::make_shared<AheadSource>(std::move(file), impl_->ahead);
}

Result<std::shared_ptr<Source>> SourceOpener::OpenPlain(const std::string& where) const {
  if (!IsUrl(where)) return OpenFileSource(where);
  IMGD_ASSIGN(RemoteObject object, impl_->ObjectAt(where));
  return RemoteFile::Open(std::move(object));
}

Result<std::optional<std::string>> SourceOpener::ReadSmall(const std::string& where,
                                                           uint64_t most_bytes) const {
  if (IsUrl(where)) {
    IMGD_ASSIGN(const RemoteObject object, impl_->ObjectAt(where));
    auto text = ReadWhole(object, most_bytes);
    const bool denied = !text && text.error().code == ErrorCode::kPermissionDenied;
    if (denied || (text && *text && IsWebPage(**text))) return std::optional<std::string>();
    return text;
  }
  auto text = ReadFile(where, most_bytes);
  if (text) return std::optional(std::move(*text));
  if (text.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
  return tl::unexpected<Error>(std::move(text).error());
}

Result<std::vector<RemoteEntry>> SourceOpener::List(const std::string& folder) const {
  const std::string where = Beside(folder, "");
  IMGD_ASSIGN(const Url url, ParseUrl(where));
  if (url.scheme == "s3") return impl_->s3.List(url);
  IMGD_ASSIGN(const RemoteObject object, impl_->ObjectAt(where));
  IMGD_ASSIGN(const auto text, ReadWhole(object, kMostListingBytes));
  if (!text)
    return Fail(ErrorCode::kNotFound, "{}: there is no such folder on the server, or it lists none",
                object.name);
  return ParseListing(*text, object.name);
}

Result<std::shared_ptr<Source>> OpenSource(const std::string& where) {
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  return SourceOpener(std::move(settings)).Open(where);
}

}  // namespace imgd::data
