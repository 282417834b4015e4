#include <algorithm>
#include <istream>

#include "cli/commands.h"
#include "cli/credentials.h"
#include "cli/format.h"
#include "common/files.h"
#include "common/text.h"
#include "common/tls/pem.h"
#include "common/tls/probe.h"
#include "common/url.h"

namespace imgd::cli {
namespace {

struct LoginOptions {
  std::string server;
  std::string token_file;
  std::string ca_file;
  std::string ca_sha256;
};

/// "AB:CD" and "abcd" are the same.
std::string PlainHex(std::string text) {
  std::erase(text, ':');
  return Lower(text);
}

Result<std::string> TakeToken(Context& context, const LoginOptions& options) {
  if (!options.token_file.empty()) return ReadToken(options.token_file);
  if (auto token = context.env()("IMGD_TOKEN"); !token.empty()) return token;
  std::string line;
  std::getline(context.in(), line);
  std::string token(Trimmed(line));
  if (!token.empty()) return token;
  return tl::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                              .message = "found no token: --token-file FILE, IMGD_TOKEN, or a line on the "
                                         "standard input is needed",
                              .hint = "the first one is in admin.token in imgd's state folder"});
}

/// The certificate that the daemon is to be known by.
Result<std::string> TakeCa(const std::string& target, const LoginOptions& options) {
  if (!options.ca_file.empty()) {
    IMGD_ASSIGN(std::string text, ReadFile(options.ca_file, size_t{1} << 20));
    IMGD_TRY(tls::FactsOf(text));
    return text;
  }
  IMGD_ASSIGN(const auto chain, tls::FetchChain(tls::TargetOf(target)));
  if (!options.ca_sha256.empty()) return tls::FindPinned(chain, PlainHex(options.ca_sha256), target);
  IMGD_ASSIGN(const auto facts, tls::FactsOf(chain.back()));
  return tl::unexpected(Error{
      .code = ErrorCode::kPermissionDenied,
      .message = fmt::format("whether {} is the right imgd nobody has said: its CA has the SHA-256 {}",
                             target, tls::WithColons(facts.sha256)),
      .hint = "compare it with what imgd's log says at its start (sha256=), and add --ca-sha256 with it; "
              "or --ca with a copy of ca.crt in imgd's state folder"});
}

int RunLogin(Context& context, const LoginOptions& options) {
  const GrpcAddress split = SplitGrpcAddress(options.server);
  auto target = ParseServerAddress(split.address);
  if (!target) return context.Fail({target.error()});
  auto ca = TakeCa(*target, options);
  if (!ca) return context.Fail({ca.error()});
  auto token = TakeToken(context, options);
  if (!token) return context.Fail({token.error()});
  const ServerAddress address{
      .target = *target, .source = "as named", .tls = true, .ca = *ca, .token = *token};
  Client client(address, context.timeout.value_or(std::chrono::seconds(10)), context.interrupt());
  if (const auto answer = client.ListNodes(); !answer) return context.Fail(answer.error());
  if (const auto kept = KeepLogin({*target, *ca, *token}, context.env()); !kept)
    return context.Fail({kept.error()});
  context.out() << fmt::format("logged in to {}; commands that name no imgd go there\n", *target);
  return 0;
}

}  // namespace

void AddLoginCommand(Command app, Context& context) {
  auto options = std::make_shared<LoginOptions>();
  Command command =
      app.AddSubcommand("login", "Keep a token, and by what an imgd is known, for further commands");
  command.AddOption("SERVER", options->server, "HOST:PORT of imgd").Required().ValueName("");
  command
      .AddOption("--token-file", options->token_file,
                 "File with the token (else IMGD_TOKEN, else a line on the "
                 "standard input)")
      .ValueName("FILE");
  command.AddOption("--ca-sha256", options->ca_sha256, "SHA-256 of imgd's CA, as its log says at its start")
      .ValueName("HASH");
  command.AddOption("--ca", options->ca_file, "Certificate of imgd's CA, PEM").ValueName("FILE");
  command.Footer(
      "Nothing is sent before the CA is known to be the right one. What is kept is in ~/.config/imgd/logins, "
      "for\n"
      "your eyes only.\n\n"
      "Examples:\n"
      "  imgcli login gpu-head:7650 --ca-sha256 AB:CD:... --token-file admin.token\n"
      "  sudo imgcli login gpu-head:7650 --ca /var/lib/imgd/ca.crt --token-file /var/lib/imgd/admin.token");
  command.Runs([&context, options] { return RunLogin(context, *options); });
}

}  // namespace imgd::cli
