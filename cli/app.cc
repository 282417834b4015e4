#include "cli/app.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/format.h"
#include "cli/screen.h"
#include "common/version.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr int kUsage = 2;
constexpr Duration kDefaultTimeout = std::chrono::seconds(10);

void AddGlobalOptions(Command app, Context& context, std::string& color) {
  app.AddOption(
         "--server", context.server,
         "Address of imgd (else IMGD_SERVER, else server: in ~/.config/imgd/config.yaml, else the last "
         "login, else 127.0.0.1:7650); http:// before it is plain text, https:// TLS")
      .ValueName("HOST:PORT");
  const auto take_timeout = [&context](const std::string& text) -> Status {
    IMGD_ASSIGN(context.timeout, ParseDuration(text));
    return {};
  };
  app.AddOption(
         "--timeout", take_timeout,
         "How long to wait for an answer, and for an imgd that went away (default 10s; watch, wait and "
         "logs -f, once they follow: no limit)")
      .ValueName("TIME");
  app.AddOption("--color", color, "auto, always or never (auto: on a terminal, unless NO_COLOR is set)")
      .ValueName("WHEN")
      .OneOf({"auto", "always", "never"});
}

void ApplyColor(const std::string& color, const Environment& env, Terminal& terminal) {
  const bool wanted = color == "auto" && env("NO_COLOR").empty() && env("TERM") != "dumb";
  terminal.color = color == "always" || (wanted && terminal.is_terminal);
  terminal.err_color = color == "always" || (wanted && terminal.err_is_terminal);
}

void AddVersionCommand(Command app, Context& context) {
  app.AddSubcommand("version", "Print the version of imgcli").Runs([&context] {
    context.out() << "imgcli " << kVersion << '\n';
    return 0;
  });
}

void AddCompletionCommand(Command app, Context& context) {
  auto shell = std::make_shared<std::string>();
  Command command = app.AddSubcommand("completion", "Print what makes a shell complete imgcli's words");
  command.AddOption("SHELL", *shell, "bash, zsh or fish")
      .Required()
      .ValueName("")
      .OneOf({"bash", "zsh", "fish"});
  command.Footer(
      "Debian's package has it in place. Otherwise:\n"
      "  imgcli completion bash > ~/.local/share/bash-completion/completions/imgcli\n"
      "  imgcli completion zsh > ~/.zfunc/_imgcli       (with ~/.zfunc in fpath)\n"
      "  imgcli completion fish > ~/.config/fish/completions/imgcli.fish");
  command.Runs([&context, shell] {
    context.out() << *CompletionScript(*shell);
    return 0;
  });
}

void AddCommands(Command app, Context& context) {
  AddSubmitCommand(app, context);
  AddJobsCommand(app, context);
  AddShowCommand(app, context);
  AddExplainCommand(app, context);
  AddTopCommand(app, context);
  AddWatchCommand(app, context);
  AddWaitCommand(app, context);
  AddLogsCommand(app, context);
  AddAttachCommand(app, context);
  AddCancelCommand(app, context);
  AddDeleteCommand(app, context);
  AddSweepCommand(app, context);
  AddPauseCommand(app, context);
  AddResumeCommand(app, context);
  AddMoveCommand(app, context);
  AddPriorityCommand(app, context);
  AddExtendCommand(app, context);
  AddRerunCommand(app, context);
  AddMetricsCommand(app, context);
  AddProfileCommand(app, context);
  AddEventsCommand(app, context);
  AddNodesCommand(app, context);
  AddNodeCommands(app, context);
  AddShellCommand(app, context);
  AddForwardCommand(app, context);
  AddUsageCommand(app, context);
  AddTokenCommands(app, context);
  AddAdminCommands(app, context);
  AddLoginCommand(app, context);
  AddCheckpointsCommand(app, context);
  AddExportCommand(app, context);
  AddModelCommands(app, context);
  AddDoctorCommand(app, context);
  AddVersionCommand(app, context);
  AddCompletionCommand(app, context);
  AddDatasetCommands(app, context);
  AddRecipesCommand(app, context);
}

/// `imgcli complete WORDS...`, which the shells' scripts ask; as any words can follow, it is no command among
/// others.
bool AsksToComplete(int argc, const char* const* argv) {
  return argc > 1 && std::string_view(argv[1]) == "complete";
}

/// Broken data are bad input: those of the daemon are not among them (client.cc).
int ExitCodeOfCli(ErrorCode code) {
  return ExitCodeOf(code == ErrorCode::kDataLoss ? ErrorCode::kInvalidArgument : code);
}

/// A result that could not be written is a failure, except to a reader that wanted no more of it; one that
/// failed anyway keeps its code.
int CheckOutput(Context& context, int exit_code) {
  context.out().flush();
  if (context.out() || (exit_code != 0 && context.ReaderIsGone())) return exit_code;
  const int failed = context.Fail({Error{.code = ErrorCode::kInternal,
                                         .message = "cannot write all of the output to standard output",
                                         .hint = "is the disk full?"}});
  return exit_code != 0 ? exit_code : failed;
}

}  // namespace

void Context::FollowUntilInterrupted() {
  if (host_.take_signals) interrupt_.ListenToSignals();
}

void Context::FollowSession(bool quit) {
  constexpr Duration kLeaveAfter = std::chrono::seconds(2);
  if (!host_.take_signals) return;
  interrupt_.LeaveAfter(kLeaveAfter);
  interrupt_.ListenToSignals(quit ? std::vector<int>{SIGHUP, SIGQUIT} : std::vector<int>{SIGHUP});
}

std::unique_ptr<Screen> Context::OpenScreen() { return host_.open_screen ? host_.open_screen() : nullptr; }

Reply<Client*> Context::client() {
  if (!client_) {
    auto address = ResolveServer(server, host_.env);
    if (!address) return tl::unexpected(std::move(address).error());
    client_ = std::make_unique<Client>(std::move(*address), timeout.value_or(kDefaultTimeout), interrupt_);
  }
  return client_.get();
}

void Context::Say(std::string_view text, Style style) {
  host_.out.flush();
  host_.err << Paint(text, style, terminal_.err_color) << std::endl;
}

int Context::Fail(const Errors& errors) {
  if (interrupt_.Triggered()) return interrupt_.ExitCode();
  host_.out.flush();
  for (const auto& error : errors) {
    if (error.file.empty()) host_.err << Paint("error:", Style::kBad, terminal_.err_color) << ' ';
    host_.err << Printable(error.ToString()) << '\n';
  }
  host_.err.flush();
  return errors.empty() ? 1 : ExitCodeOfCli(errors.front().code);
}

std::string Context::Suggest(std::string_view command) const {
  return server.empty() ? fmt::format("imgcli {}", command)
                        : fmt::format("imgcli --server {} {}", server, command);
}

void AddOutputOption(Command command, OutputFormat& format, const std::vector<std::string>& allowed) {
  const auto take = [&format, allowed](const std::string& text) -> Status {
    IMGD_ASSIGN(format, ParseOutputFormat(text, allowed));
    return {};
  };
  command.AddOption("-o,--output", take, fmt::format("{} (default table)", fmt::join(allowed, ", ")))
      .ValueName("FORMAT")
      .Suggests(allowed);
}

void AddJobArgument(Command command, std::string& job) {
  command.AddOption("JOB", job, "Number of the job, or its name").Required().ValueName("");
}

int Run(int argc, const char* const* argv, const Host& host) {
  Context context(host);
  CommandLine line("imgcli", "Submits training jobs to imgd, watches them and ends them.",
                   fmt::format("imgcli {}", kVersion));
  line.root().Footer(
      "Examples:\n"
      "  imgcli submit job.yaml --watch      run a job and follow it\n"
      "  imgcli jobs                         what runs, what waits\n"
      "  imgcli top                          the whole cluster, live\n"
      "  imgcli show 12                      all about job 12: why it waits, where it runs\n"
      "  imgcli logs 12 -f --rank 0          what rank 0 prints\n"
      "\nExit codes: 0 done, 1 internal error, 2 bad input or usage, 3 not found, 4 imgd out of reach,\n"
      "5 refused, 6 job failed, 7 job cancelled (docs/exit-codes.md).");
  std::string color = "auto";
  AddGlobalOptions(line.root(), context, color);
  AddCommands(line.root(), context);
  if (AsksToComplete(argc, argv)) {
    host.out << CompletionText(Complete(line.grammar(), {argv + 2, argv + argc}));
    return CheckOutput(context, 0);
  }
  const auto parsed = line.Parse(argc, argv, host.out, host.err);
  if (parsed.exit_code) return CheckOutput(context, *parsed.exit_code);
  ApplyColor(color, host.env, context.terminal());
  if (parsed.error) {
    context.Fail({Error{.code = ErrorCode::kInvalidArgument, .message = parsed.error->message}});
    context.Say(fmt::format("{} --help shows what is possible", parsed.error->command), Style::kDim);
    return kUsage;
  }
  if (!parsed.action) {
    context.Say(line.Help());
    return kUsage;
  }
  return CheckOutput(context, parsed.action());
}

int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  return Run(argc, argv, Host{.in = std::cin, .out = out, .err = err, .terminal = {}, .env = env});
}

}  // namespace imgd::cli
