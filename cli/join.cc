#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/words.h"
#include "common/tls/probe.h"
#include "common/url.h"

namespace imgd::cli {
namespace {

struct JoinOptions {
  uint32_t uses = 1;
  Duration ttl{};
  std::string name;
  OutputFormat format = OutputFormat::kTable;
};

/// As an agent has to name it: one at a loopback address is spoken to in plain text otherwise.
std::string ByTlsOf(const ServerAddress& imgd) {
  const bool is_local = IsLoopbackHost(tls::TargetOf(imgd.target).host);
  return (imgd.tls && is_local ? "https://" : "") + imgd.target;
}

int CreateJoinToken(Context& context, const JoinOptions& options) {
  v1::CreateJoinTokenRequest request;
  request.set_uses(options.uses);
  request.set_owner(OwnerName(context.env()));
  const auto ttl = std::chrono::duration_cast<std::chrono::milliseconds>(options.ttl);
  request.set_ttl_ms(static_cast<uint64_t>(ttl.count()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->CreateJoinToken(request);
  if (!answer) return context.Fail(answer.error());
  if (options.format != OutputFormat::kTable) {
    auto document = ToJson(answer->token());
    document["secret"] = answer->secret();
    PrintDocument(context.out(), document, options.format);
    return 0;
  }
  // Alone on the standard output: `imgcli node join-token > token`.
  context.out() << answer->secret() << '\n';
  context.Say(fmt::format("{}: good for {}, {}; on the node: imgagent --server {} --token-file FILE",
                          answer->token().id(),
                          answer->token().uses() == 1 ? std::string("one node")
                                                      : fmt::format("{} nodes", answer->token().uses()),
                          HumanAge(answer->token().expires_us(), answer->token().created_us()),
                          ByTlsOf((*client)->address())),
              Style::kDim);
  return 0;
}

std::string JoinTokenState(const v1::JoinToken& token, int64_t now_us) {
  if (token.uses_left() == 0)
    return token.joined_size() < static_cast<int>(token.uses()) ? "revoked" : "used up";
  if (token.expires_us() <= now_us) return "expired";
  return fmt::format("{} left, {}", token.uses_left(), HumanAge(token.expires_us(), now_us));
}

int ListJoinTokens(Context& context, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->ListJoinTokens();
  if (!answer) return context.Fail(answer.error());
  if (IsDocument(format)) {
    PrintDocument(context.out(), ToJsonArray(answer->tokens()), format);
    return 0;
  }
  if (answer->tokens().empty()) {
    context.Say("there are no join tokens; imgcli node join-token makes one");
    return 0;
  }
  const bool wide = format == OutputFormat::kWide;
  std::vector<Column> columns = {{"ID"}, {"OWNER"}, {"AGE", true}, {"STATE"}};
  if (wide) columns.insert(columns.end(), {Column{"USES", true}, Column{"CREATED"}, Column{"EXPIRES"}});
  columns.push_back({.title = "JOINED", .shrink = !wide});
  Table table(std::move(columns));
  const int64_t now_us = NowMicros();
  for (const auto& token : answer->tokens()) {
    std::string joined;
    for (const auto& use : token.joined()) {
      joined += (joined.empty() ? "" : ",") + Printable(use.node());
      if (wide) joined += fmt::format(" ({}, {})", Printable(use.address()), LocalTime(use.time_us()));
    }
    std::vector<Cell> row = {token.id(), Printable(token.owner()), HumanAge(now_us, token.created_us()),
                             JoinTokenState(token, now_us)};
    if (wide) {
      row.insert(row.end(), {Cell(std::to_string(token.uses())), Cell(LocalTime(token.created_us())),
                             Cell(LocalTime(token.expires_us()))});
    }
    row.emplace_back(joined);
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
  return 0;
}

int RevokeJoinToken(Context& context, const std::string& id) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  if (const auto answer = (*client)->RevokeJoinToken(id); !answer) return context.Fail(answer.error());
  context.out() << fmt::format("{}: revoked; no node joins by it any more\n", Printable(id));
  return 0;
}

struct RevokeOptions {
  std::string name;
  bool may_rejoin = false;
};

int RevokeNode(Context& context, const RevokeOptions& options) {
  v1::RevokeNodeRequest request;
  request.set_name(options.name);
  request.set_may_rejoin(options.may_rejoin);
  request.set_actor(OwnerName(context.env()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  if (const auto answer = (*client)->RevokeNode(request); !answer) return context.Fail(answer.error());
  context.out() << fmt::format(
      "{}: revoked; it takes no part until it joins {}\n", Printable(options.name),
      options.may_rejoin ? "anew as the EC2 instance that it is, which it may once" : "with a new token");
  return 0;
}

void AddRevokeCommands(Command node, Context& context) {
  auto id = std::make_shared<std::string>();
  Command revoke = node.AddSubcommand("revoke-join-token", "Take a join token back");
  revoke.AddOption("ID", *id, "As node join-tokens shows it").Required().ValueName("");
  revoke.Footer("Examples:\n  imgcli node revoke-join-token 1f0c9a2b");
  revoke.Runs([&context, id] { return RevokeJoinToken(context, *id); });

  auto options = std::make_shared<RevokeOptions>();
  Command leave = node.AddSubcommand("revoke", "End a node's leave to take part, at once");
  leave.AddOption("NODE", options->name, "Name of the node, as imgcli nodes shows it")
      .Required()
      .ValueName("");
  leave.AddFlag("--rejoin", options->may_rejoin,
                "It may join once more as the EC2 instance that it is, however long ago that was started");
  leave.Footer(
      "Its stream is closed and its certificate refused; its runs start elsewhere as those of a lost node "
      "do. To let\n"
      "them end through a checkpoint first: imgcli node drain NODE --wait.\n\n"
      "Examples:\n"
      "  imgcli node revoke gpu-3\n"
      "  imgcli node revoke i-0123456789abcdef0 --rejoin  its disk was replaced, or it was off for weeks");
  leave.Runs([&context, options] { return RevokeNode(context, *options); });
}

}  // namespace

void AddJoinCommands(Command node, Context& context) {
  auto options = std::make_shared<JoinOptions>();
  Command make = node.AddSubcommand("join-token", "Make what a node joins by, and print it, this once");
  make.AddNumber("--uses", "How many nodes may join by it (default 1)", 1, 100'000,
                 [options](uint64_t uses) { options->uses = static_cast<uint32_t>(uses); });
  const auto take_ttl = [options](const std::string& text) -> Status {
    IMGD_ASSIGN(options->ttl, ParseDuration(text));
    return {};
  };
  make.AddOption("--ttl", take_ttl, "How long it is good, such as 30m or 7d (default 1h)").ValueName("TIME");
  AddOutputOption(make, options->format, kPlainFormats);
  make.Footer(
      "It has the SHA-256 of imgd's CA in it, by which the node knows imgd before it sends anything.\n\n"
      "Examples:\n"
      "  (umask 077; imgcli node join-token > token)  then on the node: imgagent --server gpu-head:7650 "
      "--token-file token\n"
      "  imgcli node join-token --uses 16 --ttl 1d    for an allocation or an autoscaling group");
  make.Runs([&context, options] { return CreateJoinToken(context, *options); });

  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command list =
      node.AddSubcommand("join-tokens", "List the join tokens, without themselves, and who joined by them");
  AddOutputOption(list, *format);
  list.Footer("Examples:\n  imgcli node join-tokens");
  list.Runs([&context, format] { return ListJoinTokens(context, *format); });
  AddRevokeCommands(node, context);
}

}  // namespace imgd::cli
