#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

struct TokenArguments {
  std::string name;
  std::vector<std::string> scopes;
  std::string owner;
  Duration ttl{};
  OutputFormat format = OutputFormat::kTable;
};

int CreateToken(Context& context, const TokenArguments& arguments) {
  v1::CreateTokenRequest request;
  request.set_name(arguments.name);
  for (const auto& scope : arguments.scopes) request.add_scopes(scope);
  request.set_owner(arguments.owner.empty() ? OwnerName(context.env()) : arguments.owner);
  const auto ttl = std::chrono::duration_cast<std::chrono::milliseconds>(arguments.ttl);
  request.set_ttl_ms(static_cast<uint64_t>(ttl.count()));
  request.set_actor(OwnerName(context.env()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->CreateToken(request);
  if (!answer) return context.Fail(answer.error());
  if (arguments.format != OutputFormat::kTable) {
    auto document = ToJson(answer->token());
    document["secret"] = answer->secret();
    PrintDocument(context.out(), document, arguments.format);
    return 0;
  }
  // Alone on the standard output: `TOKEN=$(imgcli token create --scope report)`.
  context.out() << answer->secret() << '\n';
  const std::string name = Printable(answer->token().name());
  const bool only_reports = arguments.scopes == std::vector<std::string>{"report"};
  context.Say(only_reports
                  ? fmt::format("{}: a run that reports with it is of the user who runs it there", name)
                  : fmt::format("{}: what is done with it is done in the name of {}{}", name,
                                Printable(answer->token().owner()),
                                arguments.owner.empty() ? ", as no --owner was named" : ""));
  context.Say(fmt::format("{}: shown this once; imgcli token revoke {} takes it back", name, name),
              Style::kDim);
  return 0;
}

std::string ExpiryText(const v1::Token& token, int64_t now_us) {
  if (token.expires_us() == 0) return "never";
  if (token.expires_us() <= now_us) return "expired";
  return "in " + HumanAge(token.expires_us(), now_us);
}

int ListTokens(Context& context, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->ListTokens();
  if (!answer) return context.Fail(answer.error());
  if (IsDocument(format)) {
    PrintDocument(context.out(), ToJsonArray(answer->tokens()), format);
    return 0;
  }
  if (answer->tokens().empty()) {
    context.Say("there are no tokens; imgcli token create --scope report makes one");
    return 0;
  }
  const bool wide = format == OutputFormat::kWide;
  std::vector<Column> columns = {
      {.title = "NAME", .shrink = !wide}, {"SCOPES"}, {"OWNER"}, {"AGE", true}, {"EXPIRES"}};
  if (wide) columns.insert(columns.end(), {Column{"CREATED"}, Column{"UNTIL"}});
  Table table(std::move(columns));
  const int64_t now_us = NowMicros();
  for (const auto& token : answer->tokens()) {
    std::string scopes;
    for (const auto& scope : token.scopes()) scopes += (scopes.empty() ? "" : ",") + Printable(scope);
    std::vector<Cell> row = {Printable(token.name()), scopes, Printable(token.owner()),
                             HumanAge(now_us, token.created_us()), ExpiryText(token, now_us)};
    if (wide) {
      row.insert(row.end(), {Cell(LocalTime(token.created_us())),
                             Cell(token.expires_us() == 0 ? "" : LocalTime(token.expires_us()))});
    }
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
  return 0;
}

int RevokeToken(Context& context, const std::string& name) {
  v1::RevokeTokenRequest request;
  request.set_name(name);
  request.set_actor(OwnerName(context.env()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->RevokeToken(request);
  if (!answer) return context.Fail(answer.error());
  context.out() << fmt::format("{}: revoked; what is asked with it from now on is refused\n",
                               Printable(name));
  return 0;
}

void AddCreateToken(Command token, Context& context) {
  auto arguments = std::make_shared<TokenArguments>();
  Command command = token.AddSubcommand("create", "Make a token and print it, this once");
  command
      .AddOption("--scope", arguments->scopes,
                 "What it is good for: report, view, submit, operate or admin (may be repeated)")
      .ValueName("SCOPE")
      .SplitAtCommas()
      .OneValueEach()
      .Required();
  command.AddOption("--name", arguments->name, "Its name, unique (default: one that imgd chooses)")
      .ValueName("NAME");
  command
      .AddOption("--owner", arguments->owner,
                 "Whose it is: what is done with it is done in this name (default: the user that you are on "
                 "this machine)")
      .ValueName("USER");
  const auto take_ttl = [arguments](const std::string& text) -> Status {
    IMGD_ASSIGN(arguments->ttl, ParseDuration(text));
    return {};
  };
  command
      .AddOption("--ttl", take_ttl, "How long it is good, such as 12h or 30d (default: until it is revoked)")
      .ValueName("TIME");
  AddOutputOption(command, arguments->format, kPlainFormats);
  command.Footer(
      "imgd keeps only its SHA-256. With the scope report, imgtrain --report tells imgd of a run that was\n"
      "started by hand (docs/report.md).\n\n"
      "Examples:\n"
      "  export IMGD_REPORT_TOKEN=$(imgcli token create --scope report --name slurm --ttl 30d)\n"
      "  torchrun --no-python --nproc-per-node 8 imgtrain job.yaml --report https://gpu-head:7651");
  command.Runs([&context, arguments] { return CreateToken(context, *arguments); });
}

}  // namespace

void AddTokenCommands(Command app, Context& context) {
  Command token =
      app.AddSubcommand("token", "Make, list and revoke the tokens that imgd asks for, by HTTP and by TLS");
  token.NeedsSubcommand();
  token.Footer(
      "Examples:\n"
      "  imgcli token create --scope report --name slurm\n"
      "  imgcli token list\n"
      "  imgcli token revoke slurm");
  AddCreateToken(token, context);

  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command list = token.AddSubcommand("list", "List the tokens, without themselves");
  AddOutputOption(list, *format);
  list.Footer("Examples:\n  imgcli token list");
  list.Runs([&context, format] { return ListTokens(context, *format); });

  auto name = std::make_shared<std::string>();
  Command revoke = token.AddSubcommand("revoke", "Take a token back");
  revoke.AddOption("NAME", *name, "As token list shows it").Required().ValueName("");
  revoke.Footer("Examples:\n  imgcli token revoke slurm");
  revoke.Runs([&context, name] { return RevokeToken(context, *name); });
}

}  // namespace imgd::cli
