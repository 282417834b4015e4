#include "common/tls/join_token.h"

#include "common/text.h"

namespace imgd::tls {
namespace {

constexpr std::string_view kPrefix = "imgd-join-";
constexpr size_t kHashDigits = 64;

}  // namespace

std::string ToText(const JoinToken& token) {
  return fmt::format("{}{}-{}", kPrefix, token.secret, token.ca_sha256);
}

Result<JoinToken> ParseJoinToken(std::string_view text) {
  text = Trimmed(text, " \t\r\n");
  if (text.starts_with(kPrefix)) {
    text.remove_prefix(kPrefix.size());
    const size_t dash = text.rfind('-');
    const bool good = dash != std::string_view::npos && dash > 0 && text.size() - dash - 1 == kHashDigits &&
                      text.find_first_not_of("0123456789abcdef", dash + 1) == std::string_view::npos;
    if (good) return JoinToken{std::string(text.substr(0, dash)), std::string(text.substr(dash + 1))};
  }
  return tl::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                              .message = "this is no join token: imgd-join-... is expected, on one line",
                              .hint = "imgcli node join-token makes one"});
}

}  // namespace imgd::tls
