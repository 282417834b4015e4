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

Result<std::string> ParseCaHash(std::string_view text) {
  std::string hash = Lower(Trimmed(text, " \t\r\n"));
  constexpr std::string_view kAlgorithm = "sha256";
  if (hash.starts_with(kAlgorithm)) hash.erase(0, kAlgorithm.size() + 1);  // with a ':' or '='
  std::erase(hash, ':');
  if (hash.size() == kHashDigits && hash.find_first_not_of("0123456789abcdef") == std::string::npos)
    return hash;
  return tl::unexpected(Error{
      .code = ErrorCode::kInvalidArgument,
      .message = fmt::format("found '{}' as the hash of imgd's CA; sha256: and 64 hexadecimal digits are "
                             "expected",
                             text),
      .hint = "imgd's log has it at its start (sha256=...)"});
}

}  // namespace imgd::tls
