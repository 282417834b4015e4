#include "server/notify/courier.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/files.h"
#include "common/remote/http_client.h"
#include "common/sha256.h"
#include "common/text.h"
#include "server/notify/sendmail.h"

namespace imgd {
namespace {

/// Of what a receiver says of a message that it does not take, and of an owner's name.
constexpr size_t kMostSaidBytes = 120;

/// Of what others wrote, for a line of the log.
std::string Excerpt(std::string_view text) {
  std::string out(Trimmed(text.substr(0, kMostSaidBytes), " \t\r\n"));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  return out;
}

std::string WhatItSaid(const std::string& excerpt) {
  const std::string said = Excerpt(excerpt);
  return said.empty() ? said : ": " + said;
}

/// Posts to a URL, as one of the two kinds.
class WebCourier final : public Courier {
 public:
  WebCourier(NotifyTarget::Kind kind, Url url, std::string secret, HttpOptions options, const Clock* clock)
      : kind_(kind),
        url_(std::move(url)),
        secret_(std::move(secret)),
        client_(std::move(options)),
        clock_(clock) {}

  Status Deliver(const Notification& notice, const std::stop_token& stop) override {
    const bool slack = kind_ == NotifyTarget::Kind::kSlack;
    const std::string body = slack ? SlackBody(notice) : notice.body;
    HttpRequest request{.method = "POST",
                        .url = url_,
                        .headers = {{"content-type", "application/json"}},
                        .body = body,
                        .follow = false,
                        .stop = stop};
    if (!slack) AddSignature(notice, request.headers);
    const HttpBody unread = {.begin = [](const HttpAnswer&) -> Result<bool> { return false; },
                             .take = [](std::span<const uint8_t>) -> Status { return {}; }};
    const auto answer = client_.Try(std::move(request), unread);
    if (!answer) return tl::unexpected(answer.error().error);
    if (answer->status / 100 == 2) return {};
    return Fail(ErrorCode::kUnavailable, "it answers with HTTP status {}{}", answer->status,
                WhatItSaid(answer->excerpt));
  }

 private:
  void AddSignature(const Notification& notice, HttpHeaders& headers) const {
    const int64_t seconds = clock_->Wall().micros / 1'000'000;
    headers.emplace_back("webhook-id", notice.id);
    headers.emplace_back("webhook-timestamp", fmt::format("{}", seconds));
    if (!secret_.empty()) headers.emplace_back("webhook-signature", SignatureOf(secret_, notice, seconds));
  }

  NotifyTarget::Kind kind_;
  Url url_;
  std::string secret_;
  HttpClient client_;
  const Clock* clock_;
};

class MailCourier final : public Courier {
 public:
  MailCourier(std::string program, std::string from, std::vector<std::string> to, Duration timeout)
      : program_(std::move(program)), from_(std::move(from)), to_(std::move(to)), timeout_(timeout) {}

  Status Deliver(const Notification& notice, const std::stop_token& stop) override {
    const std::string owner = WordsOf(notice).owner;
    const auto to = AddressesFor(to_, owner);
    if (to.empty())
      return Fail(ErrorCode::kInvalidArgument, "its owner '{}' makes no address of {}", Excerpt(owner),
                  fmt::join(to_, ", "));
    std::vector<std::string> arguments = {program_, "-i"};
    if (!from_.empty()) arguments.insert(arguments.end(), {"-f", from_});
    arguments.push_back("--");
    arguments.insert(arguments.end(), to.begin(), to.end());
    IMGD_ASSIGN(const auto said, RunWithInput(arguments, MailText(notice, from_, to), timeout_, stop));
    if (!said.empty()) {
      spdlog::warn("job={} notice={} target={} msg=\"{} took it and says: {}\"", notice.job, notice.id,
                   notice.target, program_, said);
    }
    return {};
  }

 private:
  std::string program_;
  std::string from_;
  std::vector<std::string> to_;
  Duration timeout_;
};

Result<std::string> LineOf(const std::string& file) {
  IMGD_ASSIGN(const auto text, ReadFile(file));
  return std::string(Trimmed(text, " \t\r\n"));
}

Result<std::unique_ptr<Courier>> MakeWebCourier(const NotifyConfig& config, const NotifyTarget& target,
                                                const Clock* clock) {
  std::string where = target.url;
  if (where.empty()) {
    IMGD_ASSIGN(where, LineOf(target.url_file));
  }
  auto url = ParseUrl(where);
  // Not in its own words, which may repeat a secret.
  if (!url || url->scheme == "s3" || !url->userinfo.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "{} is no http or https URL, or has a user's name in it",
                target.url_file.empty() ? "url" : target.url_file);
  }
  std::string secret;
  if (!target.secret_file.empty()) {
    IMGD_ASSIGN(const auto text, LineOf(target.secret_file));
    IMGD_ASSIGN(secret, SecretBytes(text));
  }
  const Milliseconds timeout(config.timeout_ms);
  HttpOptions options{.connect = timeout, .stall = timeout, .whole = timeout, .ca_file = target.ca_file};
  return std::make_unique<WebCourier>(target.kind, std::move(*url), std::move(secret), std::move(options),
                                      clock);
}

}  // namespace

Result<std::string> SecretBytes(const std::string& text) {
  constexpr std::string_view kPrefix = "whsec_";
  if (text.empty()) return Fail(ErrorCode::kInvalidArgument, "the secret is empty");
  if (!text.starts_with(kPrefix)) return text;
  const std::string base64 = text.substr(kPrefix.size());
  std::string bytes(base64.size() / 4 * 3 + 3, '\0');
  const int length =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(base64.data()), static_cast<int>(base64.size()));
  if (length <= 0 || base64.size() % 4 != 0)
    return Fail(ErrorCode::kInvalidArgument, "what follows whsec_ in the secret is no Base64");
  const auto padding = std::count(base64.end() - 2, base64.end(), '=');
  bytes.resize(static_cast<size_t>(length) - static_cast<size_t>(padding));
  return bytes;
}

std::string SignatureOf(const std::string& secret, const Notification& notice, int64_t unix_seconds) {
  return "v1," + Base64(HmacSha256(secret, fmt::format("{}.{}.{}", notice.id, unix_seconds, notice.body)));
}

Result<Couriers> MakeCouriers(const NotifyConfig& config, const Clock* clock) {
  Couriers couriers;
  for (const auto& [name, target] : config.targets) {
    if (target.kind == NotifyTarget::Kind::kEmail) {
      couriers[name] = std::make_unique<MailCourier>(config.sendmail, config.from, target.to,
                                                     std::chrono::milliseconds(config.timeout_ms));
      continue;
    }
    auto made = MakeWebCourier(config, target, clock);
    if (!made) {
      Error error = made.error();
      error.message = fmt::format("notifications.targets.{}: {}", name, error.message);
      return tl::unexpected(std::move(error));
    }
    couriers[name] = std::move(*made);
  }
  return couriers;
}

}  // namespace imgd
