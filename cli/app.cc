#include "cli/app.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <iostream>

#include "cli/commands.h"
#include "cli/format.h"
#include "common/version.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr int kUsage = 2;
constexpr Duration kDefaultTimeout = std::chrono::seconds(10);

void AddGlobalOptions(CLI::App& app, Context& context, std::string& color) {
  app.add_option("--server", context.server,
                 "Address of imgd (else IMGD_SERVER, else server: in ~/.config/imgd/config.yaml, else "
                 "127.0.0.1:7650)")
      ->type_name("HOST:PORT");
  app.add_option_function<std::string>(
         "--timeout",
         [&context](const std::string& text) {
           auto timeout = ParseDuration(text);
           if (!timeout) throw CLI::ValidationError("--timeout", timeout.error().message);
           context.timeout = *timeout;
         },
         "How long to wait for an answer, and for an imgd that went away (default 10s; watch, wait and "
         "logs -f, once they follow: no limit)")
      ->type_name("TIME");
  app.add_option("--color", color, "auto, always or never (auto: on a terminal, unless NO_COLOR is set)")
      ->type_name("WHEN")
      ->check([](const std::string& text) {
        const bool known = text == "auto" || text == "always" || text == "never";
        return known ? "" : fmt::format("found '{}'; allowed: auto, always, never", text);
      });
}

void ApplyColor(const std::string& color, const Environment& env, Terminal& terminal) {
  const bool wanted = color == "auto" && env("NO_COLOR").empty() && env("TERM") != "dumb";
  terminal.color = color == "always" || (wanted && terminal.is_terminal);
  terminal.err_color = color == "always" || (wanted && terminal.err_is_terminal);
}

void AddVersionCommand(CLI::App& app, Context& context) {
  app.add_subcommand("version", "Print the version of imgcli")->callback([&context] {
    context.command = [&context] {
      context.out() << "imgcli " << kVersion << '\n';
      return 0;
    };
  });
}

void AddCommands(CLI::App& app, Context& context) {
  AddSubmitCommand(app, context);
  AddJobsCommand(app, context);
  AddShowCommand(app, context);
  AddWatchCommand(app, context);
  AddWaitCommand(app, context);
  AddLogsCommand(app, context);
  AddCancelCommand(app, context);
  AddNodesCommand(app, context);
  AddVersionCommand(app, context);
  AddDatasetCommands(app, context);
}

/// The command (or the command of a command) that was named on the line.
const CLI::App& DeepestCommand(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::vector<std::string> OptionNames(const CLI::App& app, const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* level : {&command, &app}) {
    for (const auto* option : level->get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

/// Words for what nobody knows on the command line.
std::string UnknownText(const CLI::App& app, const std::string& extra) {
  const CLI::App& command = DeepestCommand(app);
  std::vector<std::string> known;
  std::string text;
  if (extra.starts_with('-')) {
    text = fmt::format("unknown option {}", extra.substr(0, extra.find('=')));
    known = OptionNames(app, command);
  } else if (!command.get_subcommands([](const CLI::App*) { return true; }).empty()) {
    text = fmt::format("unknown command '{}'", extra);
    for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(sub->get_name());
    }
  } else {
    return fmt::format("'{}' is one argument too many", extra);
  }
  const auto nearest = NearestWord(extra.substr(0, extra.find('=')), known);
  return nearest ? fmt::format("{} (did you mean '{}'?)", text, *nearest) : text;
}

int ReportUsage(const CLI::App& app, const CLI::ParseError& error, Context& context) {
  std::string text = error.what();
  const auto extras = app.remaining(true);
  const int kind = error.get_exit_code();
  // What is missing is often what was misspelt.
  if (!extras.empty() && (kind == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                          kind == static_cast<int>(CLI::ExitCodes::RequiredError))) {
    text = UnknownText(app, extras.front());
  }
  const CLI::App& command = DeepestCommand(app);
  std::string name = command.get_name();
  for (const auto* up = command.get_parent(); up != nullptr; up = up->get_parent()) {
    name = up->get_name() + " " + name;
  }
  Error usage{.code = ErrorCode::kInvalidArgument, .message = text};
  context.Fail({usage});
  context.Say(fmt::format("{} --help shows what is possible", name), Style::kDim);
  return kUsage;
}

int RunParsed(const CLI::App& app, Context& context) {
  if (!context.command) {
    context.Say(app.help());
    return kUsage;
  }
  return context.command();
}

/// A result that could not be written is a failure, except to a reader that wanted no more of it.
int CheckOutput(Context& context, int exit_code) {
  context.out().flush();
  if (context.out() || exit_code != 0) return exit_code;
  return context.Fail({Error{.code = ErrorCode::kInternal,
                             .message = "cannot write all of the output to standard output",
                             .hint = "is the disk full?"}});
}

}  // namespace

void Context::FollowUntilInterrupted() {
  if (host_.take_signals) interrupt_.ListenToSignals();
}

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
  return errors.empty() ? 1 : ExitCodeOf(errors.front().code);
}

std::string Context::Suggest(std::string_view command) const {
  return server.empty() ? fmt::format("imgcli {}", command)
                        : fmt::format("imgcli --server {} {}", server, command);
}

void AddOutputOption(CLI::App& command, OutputFormat& format, const std::vector<std::string>& allowed) {
  command
      .add_option_function<std::string>(
          "-o,--output",
          [&format, allowed](const std::string& text) {
            auto parsed = ParseOutputFormat(text, allowed);
            if (!parsed) throw CLI::ValidationError("--output", parsed.error().message);
            format = *parsed;
          },
          fmt::format("{} (default table)", fmt::join(allowed, ", ")))
      ->type_name("FORMAT");
}

CLI::Option* AddNumberOption(CLI::App& command, const std::string& name, const std::string& help,
                             uint64_t least, uint64_t most, const std::function<void(uint64_t)>& set) {
  return command
      .add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            uint64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [at, error] = std::from_chars(text.data(), end, value);
            if (error != std::errc() || at != end || value < least || value > most) {
              const bool bounded = most < uint64_t{UINT32_MAX};
              const auto range =
                  bounded ? fmt::format("from {} to {}", least, most) : fmt::format("from {}", least);
              throw CLI::ValidationError(
                  name, fmt::format("found '{}' where a whole number {} is expected", text, range));
            }
            set(value);
          },
          help)
      ->type_name("N");
}

void AddJobArgument(CLI::App& command, std::string& job) {
  command.add_option("JOB", job, "Number of the job, or its name")->required()->type_name("");
}

int Run(int argc, const char* const* argv, const Host& host) {
  Context context(host);
  CLI::App app("Submits training jobs to imgd, watches them and ends them.", "imgcli");
  app.fallthrough();
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(32);
  app.set_version_flag("-V,--version", fmt::format("imgcli {}", kVersion));
  app.footer(
      "Examples:\n"
      "  imgcli submit job.yaml --watch      run a job and follow it\n"
      "  imgcli jobs                         what runs, what waits\n"
      "  imgcli show 12                      all about job 12: why it waits, where it runs\n"
      "  imgcli logs 12 -f --rank 0          what rank 0 prints\n"
      "\nExit codes: 0 done, 1 internal error, 2 bad input or usage, 3 not found, 4 imgd out of reach,\n"
      "5 refused, 6 job failed, 7 job cancelled (docs/exit-codes.md).");
  std::string color = "auto";
  AddGlobalOptions(app, context, color);
  AddCommands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success, host.out, host.err);
  } catch (const CLI::ParseError& error) {
    ApplyColor(color, host.env, context.terminal());
    return ReportUsage(app, error, context);
  }
  ApplyColor(color, host.env, context.terminal());
  return CheckOutput(context, RunParsed(app, context));
}

int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  return Run(argc, argv, Host{.in = std::cin, .out = out, .err = err, .terminal = {}, .env = env});
}

}  // namespace imgd::cli
