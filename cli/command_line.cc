#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "common/yaml.h"

namespace imgd::cli {
namespace {

/// The command (or the command of a command) that was named on the line.
const CLI::App& DeepestCommand(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::string FullName(const CLI::App& command) {
  std::string name = command.get_name();
  for (const auto* up = command.get_parent(); up != nullptr; up = up->get_parent()) {
    name = up->get_name() + " " + name;
  }
  return name;
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

/// Words are kept as the name of a check: help, which shows its description, has them in its own words.
constexpr std::string_view kWordsAre = "words ";

CLI::Validator CheckWithWords(std::function<std::string(std::string&)> check,
                              const std::vector<std::string>& words) {
  return {std::move(check), "", fmt::format("{}{}", kWordsAre, fmt::join(words, ","))};
}

std::vector<std::string> WordsOf(CLI::Option& option) {
  std::vector<std::string> words;
  try {
    for (int i = 0;; ++i) {
      const std::string name = option.get_validator(i)->get_name();
      if (!name.starts_with(kWordsAre)) continue;
      words = CLI::detail::split(name.substr(kWordsAre.size()), ',');
    }
  } catch (const CLI::OptionNotFound&) {
    // That was the last one.
  }
  return words;
}

Grammar::Option GrammarOf(CLI::Option& option) {
  Grammar::Option copy{.help = option.get_description(),
                       .words = WordsOf(option),
                       .takes_value = option.get_items_expected_max() > 0};
  if (copy.takes_value) copy.value_name = option.get_type_name();
  for (const auto& name : option.get_snames()) copy.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) copy.names.push_back("--" + name);
  if (copy.names.empty()) copy.names.push_back(option.get_name(true));
  return copy;
}

Grammar GrammarOf(CLI::App& app) {
  Grammar grammar{.name = app.get_name(), .help = app.get_description()};
  for (auto* option : app.get_options()) {
    (option->get_positional() ? grammar.arguments : grammar.options).push_back(GrammarOf(*option));
  }
  for (auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    grammar.commands.push_back(GrammarOf(*command));
  }
  return grammar;
}

}  // namespace

Option& Option::Required() {
  option_->required();
  return *this;
}

Option& Option::ValueName(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::OneOf(std::vector<std::string> words) {
  const auto check = [words](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    return fmt::format("found '{}'; allowed: {}", text, fmt::join(words, ", "));
  };
  option_->check(CheckWithWords(check, words));
  return *this;
}

Option& Option::Suggests(const std::vector<std::string>& words) {
  option_->check(CheckWithWords([](const std::string&) { return std::string(); }, words));
  return *this;
}

Option& Option::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::AtLeast(int count) {
  option_->expected(count, -1);
  return *this;
}

Option& Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::SplitAtCommas() {
  option_->delimiter(',');
  return *this;
}

Command Command::AddSubcommand(const std::string& name, const std::string& help) {
  return {app_->add_subcommand(name, help), chosen_, rests_};
}

void Command::NeedsSubcommand() { app_->require_subcommand(1); }

Option Command::AddOption(const std::string& name, std::string& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Command::AddOption(const std::string& name, std::optional<std::string>& value,
                          const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Command::AddOption(const std::string& name, std::vector<std::string>& values,
                          const std::string& help) {
  return Option(app_->add_option(name, values, help));
}

Option Command::AddOption(const std::string& name, std::function<Status(const std::string&)> take,
                          const std::string& help) {
  const auto take_or_throw = [name, take = std::move(take)](const std::string& text) {
    const Status taken = take(text);
    if (!taken) throw CLI::ValidationError(name.substr(name.rfind(',') + 1), taken.error().message);
  };
  return Option(app_->add_option_function<std::string>(name, take_or_throw, help));
}

Option Command::AddNumber(const std::string& name, const std::string& help, uint64_t least, uint64_t most,
                          std::function<void(uint64_t)> set) {
  const auto take = [least, most, set = std::move(set)](const std::string& text) -> Status {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && at == end && value >= least && value <= most) {
      set(value);
      return {};
    }
    const bool bounded = most < uint64_t{UINT32_MAX};
    const auto range = bounded ? fmt::format("from {} to {}", least, most) : fmt::format("from {}", least);
    return Fail(ErrorCode::kInvalidArgument, "found '{}' where a whole number {} is expected", text, range);
  };
  return AddOption(name, take, help).ValueName("N");
}

void Command::AddFlag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Command::TakesRest(std::vector<std::string>& words) { (*rests_)[app_] = &words; }

void Command::Footer(const std::string& text) { app_->footer(text); }

void Command::Runs(Action action) {
  // A subcommand's callback comes before that of the command that it belongs to.
  app_->callback([chosen = chosen_, action = std::move(action)] {
    if (!*chosen) *chosen = action;
  });
}

CommandLine::CommandLine(const std::string& program, const std::string& what_it_does,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(what_it_does, program)) {
  app_->fallthrough();
  app_->require_subcommand(0, 1);
  app_->get_formatter()->column_width(32);
  app_->set_version_flag("-V,--version", version);
}

CommandLine::~CommandLine() = default;

std::string CommandLine::Help() const { return app_->help(); }

Grammar CommandLine::grammar() const { return GrammarOf(*app_); }

int CommandLine::WordsToParse(int argc, const char* const* argv) const {
  int dashes = 1;
  while (dashes < argc && std::string_view(argv[dashes]) != "--") ++dashes;
  for (const auto& [command, words] : rests_) {
    const auto is_name = [name = command->get_name()](const char* word) { return name == word; };
    if (dashes < argc && std::any_of(argv + 1, argv + dashes, is_name)) return dashes;
  }
  return argc;
}

CommandLine::Parsed CommandLine::Parse(int argc, const char* const* argv, std::ostream& out,
                                       std::ostream& err) {
  try {
    // The library would look into the rest: it takes [a] apart and {} for nothing.
    const int parsed = WordsToParse(argc, argv);
    app_->parse(parsed, argv);
    if (parsed == argc) return {.action = chosen_};
    const auto& command = DeepestCommand(*app_);
    const auto takes = rests_.find(&command);
    if (takes == rests_.end())
      return {.error = UsageError{.message = "nothing may follow --", .command = FullName(command)}};
    takes->second->assign(argv + parsed + 1, argv + argc);
    return {.action = chosen_};
  } catch (const CLI::Success& success) {
    return {.exit_code = app_->exit(success, out, err)};
  } catch (const CLI::ParseError& error) {
    const auto extras = app_->remaining(true);
    const int kind = error.get_exit_code();
    // What is missing is often what was misspelt.
    const bool unknown = !extras.empty() && (kind == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                                             kind == static_cast<int>(CLI::ExitCodes::RequiredError));
    return {.error = UsageError{.message = unknown ? UnknownText(*app_, extras.front()) : error.what(),
                                .command = FullName(DeepestCommand(*app_))}};
  }
}

}  // namespace imgd::cli
