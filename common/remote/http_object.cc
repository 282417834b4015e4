#include "common/remote/http_object.h"

#include <algorithm>
#include <charconv>

namespace imgd {
namespace {

using Kind = HttpTrouble::Kind;

HttpTrouble WorthAnotherTry(std::string message) {
  return {{.code = ErrorCode::kUnavailable, .message = std::move(message)}, Kind::kRetry};
}

std::optional<uint64_t> SecondsIn(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What helps where the bucket is in another region than was thought.
std::string RegionHint(const HttpAnswer& answer, const std::string& code) {
  const std::string region = answer.header("x-amz-bucket-region");
  if (region.empty() || (answer.status != 301 && code != "AuthorizationHeaderMalformed")) return "";
  return fmt::format("the bucket is in the region {}: set AWS_REGION", PercentEncode(region));
}

}  // namespace

std::string S3CodeIn(std::string_view body) {
  const size_t open = body.find("<Code>");
  const size_t close = open == std::string_view::npos ? open : body.find("</Code>", open);
  if (close == std::string_view::npos || close - open > 70) return "";
  return std::string(body.substr(open + 6, close - open - 6));
}

tl::expected<HttpAnswer, HttpTrouble> TryOnce(const RemoteObject& object, const ObjectRequest& asked,
                                              const HttpBody& body, const std::stop_token& stop) {
  for (bool renewed = false;; renewed = true) {
    HttpRequest request{.method = asked.method,
                        .url = object.url,
                        .headers = asked.headers,
                        .body = asked.body,
                        .follow = object.follow,
                        .stop = stop};
    if (!asked.query.empty()) request.url.query = asked.query;
    if (object.authorizer) {
      if (auto signed_ = object.authorizer->Sign(request); !signed_) {
        const bool retry = signed_.error().code == ErrorCode::kUnavailable;
        return tl::unexpected(HttpTrouble{signed_.error(), retry ? Kind::kRetry : Kind::kFinal});
      }
    }
    auto answer = object.client->Try(std::move(request), body);
    const bool refused = answer && (answer->status == 400 || answer->status == 401 || answer->status == 403);
    if (!refused || renewed || !object.authorizer) return answer;
    const std::string code = S3CodeIn(answer->excerpt);
    if (code != "ExpiredToken" && code != "TokenRefreshRequired" && code != "InvalidToken") return answer;
    if (!object.authorizer->Renew()) return answer;
  }
}

std::optional<HttpTrouble> TroubleOfStatus(const HttpAnswer& answer) {
  const int status = answer.status;
  if (status >= 200 && status < 300) return std::nullopt;
  const std::string code = S3CodeIn(answer.excerpt);
  const std::string words = code.empty() ? fmt::format("the server answers {}", status)
                                         : fmt::format("the server answers {} {}", status, code);
  const auto final = [&](ErrorCode error) {
    return HttpTrouble{{.code = error, .message = words, .hint = RegionHint(answer, code)}, Kind::kFinal};
  };
  if (status == 404 || status == 410) return final(ErrorCode::kNotFound);
  if (status == 401 || status == 403 || status == 407) return final(ErrorCode::kPermissionDenied);
  const bool in_time = code == "RequestTimeout" || code == "ConditionalRequestConflict";
  if (status == 501) return final(ErrorCode::kFailedPrecondition);
  if (status == 408 || status == 425 || status == 429 || status >= 500 || in_time) {
    HttpTrouble trouble = WorthAnotherTry(words);
    if (const auto wait = SecondsIn(answer.header("retry-after")))
      trouble.wait = Milliseconds(1000 * std::min<uint64_t>(*wait, 60));
    return trouble;
  }
  return final(ErrorCode::kUnavailable);
}

Result<std::optional<std::string>> ReadWhole(const RemoteObject& object, uint64_t most_bytes,
                                             const std::stop_token& stop) {
  Patience patience(object.client->options(), object.name, /*known=*/false);
  for (;;) {
    std::string content;
    const HttpBody body = {
        .begin = [](const HttpAnswer& answer) -> Result<bool> { return answer.status == 200; },
        .take = [&](std::span<const uint8_t> bytes) -> Status {
          if (bytes.size() > most_bytes - content.size())
            return Fail(ErrorCode::kDataLoss, "it has more than {} bytes", most_bytes);
          content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        }};
    const auto answer = TryOnce(object, ObjectRequest{}, body, stop);
    std::optional<HttpTrouble> trouble;
    if (!answer) {
      trouble = answer.error();
    } else {
      trouble = TroubleOfStatus(*answer);
      if (trouble && trouble->error.code == ErrorCode::kNotFound) return std::optional<std::string>();
      if (!trouble && answer->status == 200) return std::optional(std::move(content));
      if (!trouble)
        trouble =
            HttpTrouble{{.code = ErrorCode::kUnavailable, .message = "the server answers without a body"}};
    }
    if (const auto error = patience.Again(*trouble, stop)) return tl::unexpected(*error);
  }
}

}  // namespace imgd
