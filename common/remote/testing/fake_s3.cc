#include "common/remote/testing/fake_s3.h"

#include <ctime>

#include "common/remote/s3.h"
#include "common/sha256.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr const char* kTime = "2026-01-31T12:00:00.000Z";

TestReply Refusal(int status, const std::string& code) {
  return {.status = status, .body = fmt::format("<Error><Code>{}</Code></Error>", code)};
}

/// The value of a parameter of the query; nothing where it has none of the name.
std::optional<std::string> Parameter(const std::string& query, const std::string& name) {
  for (size_t at = 0; at < query.size();) {
    const size_t end = std::min(query.find('&', at), query.size());
    const std::string part = query.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(part.find('='), part.size());
    if (part.substr(0, equals) == name) return PercentDecode(part.substr(std::min(equals + 1, part.size())));
  }
  return std::nullopt;
}

/// As S3 encodes keys in listings.
std::string InListing(const std::string& key) {
  std::string out = PercentEncode(key, "/");
  for (size_t at = out.find("%20"); at != std::string::npos; at = out.find("%20", at))
    out.replace(at, 3, "+");
  return out;
}

std::string EtagOf(const std::string& content) {
  return fmt::format("\"{}\"", Sha256Of(content).substr(0, 32));
}

bool IsAsItsChecksumSays(const TestRequest& request) {
  const std::string checksum = request.header("x-amz-checksum-sha256");
  return checksum.empty() || checksum == Base64(Sha256Bytes(request.body));
}

}  // namespace

FakeS3::FakeS3() : server_([this](const TestRequest& request) { return Answer(request); }) {}

std::map<std::string, std::string> FakeS3::Variables() const {
  return {{"AWS_ACCESS_KEY_ID", "AK"},
          {"AWS_SECRET_ACCESS_KEY", "SK"},
          {"AWS_REGION", "eu-1"},
          {"AWS_ENDPOINT_URL", server_.url()}};
}

GetVariable FakeS3::Environment() const {
  return [variables = Variables()](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

std::map<std::string, std::string> FakeS3::Objects() const {
  const std::lock_guard lock(mutex_);
  return objects_;
}

void FakeS3::Set(const std::string& key, std::string content) {
  const std::lock_guard lock(mutex_);
  objects_[key] = std::move(content);
}

void FakeS3::Remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  objects_.erase(key);
}

size_t FakeS3::UploadsUnderWay() const {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

/// Whether the signature is the one that our keys make of what came.
bool FakeS3::Signed(const TestRequest& request) const {
  const std::string authorization = request.header("authorization");
  const size_t begin = authorization.find("SignedHeaders=") + 14;
  std::string names = authorization.substr(begin, authorization.find(',', begin) - begin) + ";";
  HttpRequest again{.method = request.method,
                    .url = ParseUrl(server_.url() + request.target).value(),
                    .body = request.body};
  for (size_t at = 0; at < names.size(); at = names.find(';', at) + 1) {
    const std::string name = names.substr(at, names.find(';', at) - at);
    if (name != "host" && name != "x-amz-date" && name != "x-amz-content-sha256")
      again.headers.emplace_back(name, request.header(name));
  }
  std::tm parts{};
  ::strptime(request.header("x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &parts);
  SignV4(again, {"AK", secret_key, ""},
         {"eu-1", "s3", std::chrono::system_clock::from_time_t(::timegm(&parts))});
  return again.headers.back().second == authorization;
}

TestReply FakeS3::Answer(const TestRequest& request) {
  if (intercept) {
    if (auto reply = intercept(request)) return *reply;
  }
  if (!Signed(request)) return Refusal(403, "SignatureDoesNotMatch");
  if (!IsAsItsChecksumSays(request)) return Refusal(400, "BadDigest");
  const size_t mark = std::min(request.target.find('?'), request.target.size());
  const std::string path = PercentDecode(request.target.substr(0, mark));
  const std::string query = request.target.substr(std::min(mark + 1, request.target.size()));
  if (!path.starts_with("/b/")) return Refusal(404, "NoSuchBucket");
  const std::string key = path.substr(3);
  const std::lock_guard lock(mutex_);
  if (key.empty()) return Parameter(query, "uploads") ? ListUploads() : ListKeys(query);
  if (request.method == "POST") return Post(request, key, query);
  if (request.method == "PUT" && query.empty()) return Put(request, key);
  const auto id = Parameter(query, "uploadId");
  if (id && !uploads_.contains(*id)) return Refusal(404, "NoSuchUpload");
  if (request.method == "PUT") {
    uploads_[*id].parts[std::stoi(*Parameter(query, "partNumber"))] = request.body;
    return {.headers = {{"ETag", EtagOf(request.body)}}};
  }
  if (request.method == "DELETE") {
    static_cast<void>(id ? uploads_.erase(*id) : objects_.erase(key));
    return {.status = 204};
  }
  const auto found = objects_.find(key);
  if (found == objects_.end()) return Refusal(404, "NoSuchKey");
  if (request.header("range").ends_with('-')) {  // to the end
    TestRequest closed = request;
    closed.headers["range"] += std::to_string(found->second.size() - 1);
    return ServeContent(closed, found->second, EtagOf(found->second));
  }
  return ServeContent(request, found->second, EtagOf(found->second));
}

TestReply FakeS3::Put(const TestRequest& request, const std::string& key) {
  if (request.header("if-none-match") == "*" && objects_.contains(key))
    return Refusal(412, "PreconditionFailed");
  objects_[key] = request.body;
  return {.headers = {{"ETag", EtagOf(request.body)}}};
}

TestReply FakeS3::Post(const TestRequest& request, const std::string& key, const std::string& query) {
  if (!Parameter(query, "uploads")) return Complete(request, key, Parameter(query, "uploadId").value_or(""));
  const std::string id = fmt::format("up/{}+=", next_upload_++);
  uploads_[id] = {key, {}};
  return {.body = fmt::format("<InitiateMultipartUploadResult><UploadId>{}</UploadId>"
                              "</InitiateMultipartUploadResult>",
                              id)};
}

TestReply FakeS3::Complete(const TestRequest& request, const std::string& key, const std::string& id) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.key != key) return Refusal(404, "NoSuchUpload");
  std::string whole;
  const auto listed = XmlElements(request.body, "Part");
  for (const auto& one : listed) {
    const auto part = found->second.parts.find(std::stoi(XmlText(one, "PartNumber")));
    if (part == found->second.parts.end() || XmlText(one, "ETag") != EtagOf(part->second) ||
        XmlText(one, "ChecksumSHA256") != Base64(Sha256Bytes(part->second)))
      return Refusal(400, "InvalidPart");
    if (one != listed.back() && part->second.size() < 5 << 20) return Refusal(400, "EntityTooSmall");
    whole += part->second;
  }
  objects_[key] = whole;
  uploads_.erase(found);
  return {.body = "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"};
}

TestReply FakeS3::ListKeys(const std::string& query) const {
  const std::string prefix = Parameter(query, "prefix").value_or("");
  const std::string after = Parameter(query, "continuation-token").value_or("");
  std::string body;
  size_t count = 0;
  for (auto it = objects_.upper_bound(after); it != objects_.end(); ++it) {
    const auto& [key, content] = *it;
    if (!key.starts_with(prefix)) continue;
    if (count++ == keys_a_listing) {
      body += "<IsTruncated>true</IsTruncated>";
      break;
    }
    body += fmt::format("<Contents><Key>{}</Key><LastModified>{}</LastModified><Size>{}</Size></Contents>",
                        InListing(key), kTime, content.size());
    if (count == keys_a_listing && std::next(it) != objects_.end())
      body += fmt::format("<NextContinuationToken>{}</NextContinuationToken>", key);
  }
  return {.body = "<ListBucketResult>" + body + "</ListBucketResult>"};
}

TestReply FakeS3::ListUploads() const {
  std::string body;
  for (const auto& [id, upload] : uploads_)
    body += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>", InListing(upload.key), id);
  return {.body = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>" + body +
                  "</ListMultipartUploadsResult>"};
}

HttpOptions HastyHttp() {
  return {.connect = kLong,
          .stall = kLong,
          .patience = Milliseconds(2'000),
          .first_patience = Milliseconds(50),
          .first_wait = Milliseconds(1)};
}

}  // namespace imgd
