#include "common/remote/s3_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"
#include "common/sha256.h"

namespace imgd {
namespace {

constexpr uint64_t kMostParts = 10'000;
constexpr size_t kMostAnswerBytes = 16 << 20;
constexpr const char* kChecksum = "x-amz-checksum-sha256";

/// What helps against what S3 refuses; empty where nobody knows.
std::string HintFor(const std::string& code) {
  if (code == "NoSuchBucket") return "there is no such bucket in this region, or at AWS_ENDPOINT_URL";
  if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch")
    return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile AWS_PROFILE, are not right for it";
  if (code == "AccessDenied")
    return "the credentials need s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject here";
  if (code == "RequestTimeTooSkewed") return "this machine's clock is wrong";
  if (code == "ExpiredToken") return "the credentials have expired";
  return "";
}

/// What came in an answer of 200 all the same; and what the way there has changed goes again.
std::optional<HttpTrouble> TroubleIn(const HttpAnswer& answer, const std::string& content) {
  if (auto trouble = TroubleOfStatus(answer)) {
    const std::string code = S3CodeIn(answer.excerpt);
    if (code == "BadDigest" || code == "XAmzContentSHA256Mismatch") trouble->kind = HttpTrouble::Kind::kRetry;
    if (trouble->error.hint.empty()) trouble->error.hint = HintFor(code);
    return trouble;
  }
  if (content.find("<Error>") == std::string::npos) return std::nullopt;
  return HttpTrouble{{.code = ErrorCode::kUnavailable,
                      .message = fmt::format("the server answers 200 {}", S3CodeIn(content))},
                     HttpTrouble::Kind::kRetry};
}

HttpBody TakeAll(std::string& content) {
  return {.begin = [](const HttpAnswer& answer) -> Result<bool> { return answer.status / 100 == 2; },
          .take = [&content](std::span<const uint8_t> bytes) -> Status {
            if (bytes.size() > kMostAnswerBytes - content.size())
              return Fail(ErrorCode::kDataLoss, "an answer without end");
            content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            return {};
          }};
}

Result<std::string> ReadPart(int fd, uint64_t offset, uint64_t size, const std::string& name) {
  std::string part(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::pread(fd, part.data() + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, fmt::format("cannot read {}", name));
    if (n == 0) return Fail(ErrorCode::kDataLoss, "{} became shorter", name);
    done += static_cast<size_t>(n);
  }
  return part;
}

ObjectRequest PutOf(std::string_view content) {
  return {.method = "PUT", .headers = {{kChecksum, Base64(Sha256Bytes(content))}}, .body = content};
}

}  // namespace

S3Folder::S3Folder(S3 s3, std::shared_ptr<const HttpClient> client, std::string bucket, std::string prefix)
    : s3_(std::move(s3)), client_(std::move(client)), bucket_(std::move(bucket)), prefix_(std::move(prefix)) {
  where_ = fmt::format("s3://{}/{}", bucket_, prefix_);
  where_.pop_back();
}

Result<S3Folder> S3Folder::Open(const std::string& where, const GetVariable& env, HttpOptions http) {
  IMGD_ASSIGN(const Url url, ParseUrl(where));
  if (url.scheme != "s3") return Fail(ErrorCode::kInvalidArgument, "{} is no s3://bucket/prefix", where);
  std::string prefix = url.path.substr(1);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.empty()) prefix += '/';
  auto client = std::make_shared<const HttpClient>(std::move(http));
  return S3Folder(S3(env, client), client, url.host, std::move(prefix));
}

Result<RemoteObject> S3Folder::Object(const std::string& key) const {
  return s3_.Object({.scheme = "s3", .host = bucket_, .path = fmt::format("/{}{}", prefix_, key)});
}

/// Tries until there is an answer of success, whose body it returns. `answer` gets the last one's head.
Result<std::string> S3Folder::Ask(const std::string& key, ObjectRequest request, HttpAnswer* answer) const {
  IMGD_ASSIGN(const RemoteObject object, Object(key));
  Patience patience(client_->options(), object.name, /*known=*/false,
                    request.method == "GET" ? "read" : "write");
  for (;;) {
    std::string content;
    const auto got = TryOnce(object, request, TakeAll(content), {});
    if (got && answer != nullptr) *answer = *got;
    const auto trouble = got ? TroubleIn(*got, content) : got.error();
    if (!trouble) return content;
    if (const auto error = patience.Again(*trouble, {})) return tl::unexpected(*error);
  }
}

Result<std::vector<S3Key>> S3Folder::List(const std::string& folder) const {
  IMGD_ASSIGN(auto keys,
              s3_.Keys(bucket_, prefix_ + (folder.empty() ? "" : folder + "/"), /*only_files=*/false));
  for (auto& key : keys) key.key.erase(0, prefix_.size());
  return keys;
}

Result<std::optional<std::string>> S3Folder::Get(const std::string& key, uint64_t most_bytes) const {
  IMGD_ASSIGN(const RemoteObject object, Object(key));
  Patience patience(client_->options(), object.name, /*known=*/false);
  std::string content;
  std::string etag;
  for (;;) {
    const size_t before = content.size();
    ObjectRequest request;
    if (before > 0) request.headers = {{"range", fmt::format("bytes={}-", before)}, {"if-match", etag}};
    const HttpBody body = {
        .begin = [&](const HttpAnswer& answer) -> Result<bool> {
          if (answer.status == 206)
            return answer.header("content-range").starts_with(fmt::format("bytes {}-", before));
          if (answer.status != 200) return false;
          content.clear();
          etag = answer.header("etag");
          return true;
        },
        .take = [&](std::span<const uint8_t> bytes) -> Status {
          if (bytes.size() > most_bytes - content.size())
            return Fail(ErrorCode::kDataLoss, "it has more than {} bytes", most_bytes);
          content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        }};
    const auto answer = TryOnce(object, request, body, {});
    if (answer && answer->status == 412)
      return Fail(ErrorCode::kDataLoss, "{}: it has changed while it was read", object.name);
    const auto trouble = answer ? TroubleIn(*answer, "") : answer.error();
    if (!trouble) return std::optional(std::move(content));
    if (answer && trouble->error.code == ErrorCode::kNotFound && S3CodeIn(answer->excerpt) != "NoSuchBucket")
      return std::optional<std::string>();
    if (content.size() > before) patience.Progress();
    if (etag.empty()) content.clear();  // nothing would tell whether the rest is of the same
    if (const auto error = patience.Again(*trouble, {})) return tl::unexpected(*error);
  }
}

Status S3Folder::Put(const std::string& key, std::string_view content) const {
  IMGD_TRY(Ask(key, PutOf(content)));
  return {};
}

Result<bool> S3Folder::PutNew(const std::string& key, std::string_view content) const {
  ObjectRequest request = PutOf(content);
  request.headers.emplace_back("if-none-match", "*");
  HttpAnswer answer;
  const auto done = Ask(key, std::move(request), &answer);
  if (done) return true;
  if (answer.status != 412) return tl::unexpected(done.error());
  IMGD_ASSIGN(const auto there, Get(key));
  return there && *there == content;
}

Status S3Folder::PutFile(const std::string& key, const std::filesystem::path& file) const {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!fd.valid() || ::fstat(fd.get(), &facts) != 0)
    return FailErrno(errno, fmt::format("cannot open {}", file.native()));
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size > kPartBytes) return PutInParts(key, fd.get(), size);
  IMGD_ASSIGN(const std::string content, ReadPart(fd.get(), 0, size, file.native()));
  return Put(key, content);
}

Status S3Folder::PutInParts(const std::string& key, int fd, uint64_t size) const {
  IMGD_ASSIGN(
      const std::string begun,
      Ask(key, {.method = "POST", .query = "uploads", .headers = {{"x-amz-checksum-algorithm", "SHA256"}}}));
  const std::string upload = PercentEncode(XmlText(begun, "UploadId"));
  if (upload.empty())
    return Fail(ErrorCode::kDataLoss, "{}/{}: the server begins no upload in parts", where_, key);
  const auto parts = PutParts(key, upload, fd, size);
  Status done = parts ? Complete(key, upload, *parts) : tl::unexpected(parts.error());
  if (done) return {};
  // Once: whoever is not there now is not waited for again.
  std::string ignored;
  if (const auto object = Object(key)) {
    static_cast<void>(
        TryOnce(*object, {.method = "DELETE", .query = "uploadId=" + upload}, TakeAll(ignored), {}));
  }
  return done;
}

/// The list of parts, as completing them wants it.
Result<std::string> S3Folder::PutParts(const std::string& key, const std::string& upload, int fd,
                                       uint64_t size) const {
  const uint64_t part_bytes = std::max(kPartBytes, (size + kMostParts - 1) / kMostParts);
  std::string list;
  for (uint64_t at = 0, number = 1; at < size; at += part_bytes, ++number) {
    IMGD_ASSIGN(const std::string part, ReadPart(fd, at, std::min(part_bytes, size - at), key));
    ObjectRequest request = PutOf(part);
    request.query = fmt::format("partNumber={}&uploadId={}", number, upload);
    const std::string checksum = request.headers.front().second;
    HttpAnswer answer;
    IMGD_TRY(Ask(key, std::move(request), &answer));
    list += fmt::format(
        "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag><ChecksumSHA256>{}</ChecksumSHA256></Part>", number,
        answer.header("etag"), checksum);
  }
  return list;
}

Status S3Folder::Complete(const std::string& key, const std::string& upload, const std::string& parts) const {
  const std::string text = fmt::format(
      "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{}"
      "</CompleteMultipartUpload>",
      parts);
  HttpAnswer answer;
  const auto done = Ask(key,
                        {.method = "POST",
                         .query = "uploadId=" + upload,
                         .headers = {{"content-type", "application/xml"}},
                         .body = text},
                        &answer);
  if (done) return {};
  // A try of ours whose answer was lost may have been the one that did it.
  if (S3CodeIn(answer.excerpt) == "NoSuchUpload") {
    IMGD_ASSIGN(const auto keys, s3_.Keys(bucket_, prefix_ + key, /*only_files=*/false));
    if (std::ranges::find(keys, prefix_ + key, &S3Key::key) != keys.end()) return {};
  }
  return tl::unexpected(done.error());
}

Status S3Folder::Delete(const std::string& key) const {
  const auto done = Ask(key, {.method = "DELETE"});
  if (done || done.error().code == ErrorCode::kNotFound) return {};
  return tl::unexpected(done.error());
}

Status S3Folder::AbortUploads(const std::function<bool(const std::string& key)>& which) const {
  const S3Folder whole(s3_, client_, bucket_, "");
  std::string after;
  do {
    IMGD_ASSIGN(const std::string text,
                whole.Ask("", {.query = fmt::format("encoding-type=url&prefix={}&uploads{}",
                                                    PercentEncode(prefix_), after)}));
    for (const auto& one : XmlElements(text, "Upload")) {
      const std::string key = KeyOfListing(one);
      if (!key.starts_with(prefix_) || !which(key.substr(prefix_.size()))) continue;
      const std::string upload = PercentEncode(XmlText(one, "UploadId"));
      const auto ended = whole.Ask(key, {.method = "DELETE", .query = "uploadId=" + upload});
      if (!ended && ended.error().code != ErrorCode::kNotFound) return tl::unexpected(ended.error());
    }
    const std::string before = std::exchange(after, "");
    if (XmlText(text, "IsTruncated") != "true") break;
    const std::string key = PercentDecode(XmlText(text, "NextKeyMarker"));
    after = fmt::format("&key-marker={}&upload-id-marker={}", PercentEncode(key),
                        PercentEncode(XmlText(text, "NextUploadIdMarker")));
    if (after == before) break;
  } while (!after.empty());
  return {};
}

Result<std::string> ReadFileOrObject(const std::string& where) {
  if (!IsUrl(where)) return ReadFile(where);
  IMGD_ASSIGN(const auto folder,
              S3Folder::Open(FolderOf(where), VariableOfProcess, HttpOptionsFrom(VariableOfProcess)));
  IMGD_ASSIGN(auto content, folder.Get(NameOfFile(where)));
  if (!content) return Fail(ErrorCode::kNotFound, "{}: there is no such object", where);
  return std::move(*content);
}

}  // namespace imgd
