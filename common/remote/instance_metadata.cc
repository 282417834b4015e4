#include "common/remote/instance_metadata.h"

namespace imgd {
namespace {

constexpr size_t kMostContent = 64 << 10;
/// The longest that a token lasts.
constexpr const char* kTokenSeconds = "21600";

/// The service is on the machine itself, or not there at all.
HttpOptions Hurried(HttpOptions options) {
  options.connect = Milliseconds(1'000);
  options.stall = Milliseconds(5'000);
  options.direct = true;
  return options;
}

}  // namespace

InstanceMetadata::InstanceMetadata(std::string endpoint, HttpOptions options)
    : endpoint_(std::move(endpoint)), client_(Hurried(std::move(options))) {
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
}

Result<InstanceMetadata::Answer> InstanceMetadata::Ask(const char* method, const std::string& path,
                                                       HttpHeaders headers, std::stop_token stop) {
  Answer out;
  IMGD_ASSIGN(Url url, ParseUrl(endpoint_ + path));
  const HttpBody body = {
      .begin = [](const HttpAnswer& answer) -> Result<bool> { return answer.status == 200; },
      .take = [&](std::span<const uint8_t> bytes) -> Status {
        if (out.content.size() + bytes.size() > kMostContent)
          return Fail(ErrorCode::kDataLoss, "{}{}: an answer without end", endpoint_, path);
        out.content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return {};
      }};
  const auto answer = client_.Try({.method = method,
                                   .url = std::move(url),
                                   .headers = std::move(headers),
                                   .follow = false,
                                   .stop = std::move(stop)},
                                  body);
  if (!answer) return tl::unexpected(answer.error().error);
  out.status = answer->status;
  return out;
}

Status InstanceMetadata::Begin(std::stop_token stop) {
  if (!token_.empty()) return {};
  const char* path = "/latest/api/token";
  IMGD_ASSIGN(Answer answer,
              Ask("PUT", path, {{"x-aws-ec2-metadata-token-ttl-seconds", kTokenSeconds}}, std::move(stop)));
  if (answer.status != 200 || answer.content.empty())
    return Fail(ErrorCode::kUnavailable, "{}{}: status {}", endpoint_, path, answer.status);
  token_ = std::move(answer.content);
  return {};
}

Result<std::optional<std::string>> InstanceMetadata::Get(const std::string& path, std::stop_token stop) {
  for (bool fresh = token_.empty();; fresh = true) {
    IMGD_TRY(Begin(stop));
    IMGD_ASSIGN(Answer answer, Ask("GET", path, {{"x-aws-ec2-metadata-token", token_}}, stop));
    if (answer.status == 200) return std::optional(std::move(answer.content));
    if (answer.status == 404) return std::optional<std::string>();
    token_.clear();
    // The token may have ended.
    if (answer.status != 401 || fresh)
      return Fail(ErrorCode::kUnavailable, "{}{}: status {}", endpoint_, path, answer.status);
  }
}

}  // namespace imgd
