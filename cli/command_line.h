#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/grammar.h"
#include "common/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace imgd::cli {

// The grammar of the command line, as far as the commands use it. The library behind it (CLI11) is all in
// headers and takes 7 s to compile, so that command_line.cc alone includes it.

/// An option or argument of a command.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& Required();
  /// What help shows for its value: "FILE". Empty: nothing.
  Option& ValueName(const std::string& name);
  /// Refuses values that are none of these.
  Option& OneOf(std::vector<std::string> words);
  /// Values that a shell offers; others are taken too.
  Option& Suggests(const std::vector<std::string>& words);
  /// For lists: one value each time that the option is given, not all words that follow.
  Option& OneValueEach();
  /// For lists: so many values or more.
  Option& AtLeast(int count);
  /// The two must not both be given.
  Option& Excludes(const Option& other);
  /// For lists: a value may hold several, with commas between.
  Option& SplitAtCommas();

 private:
  CLI::Option* option_;
};

/// What a command does; returns the exit code.
using Action = std::function<int()>;

/// A command, as `imgcli jobs` or `imgcli dataset convert`. What it is bound to must live until it has run.
class Command {
 public:
  /// Commands that take what comes after "--".
  using Rests = std::map<const CLI::App*, std::vector<std::string>*>;
  Command(CLI::App* app, Action* chosen, Rests* rests) : app_(app), chosen_(chosen), rests_(rests) {}

  Command AddSubcommand(const std::string& name, const std::string& help);
  /// One of the subcommands must be named.
  void NeedsSubcommand();

  // `name`: "-o,--output", or without dashes that of an argument.
  Option AddOption(const std::string& name, std::string& value, const std::string& help);
  Option AddOption(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Option AddOption(const std::string& name, std::vector<std::string>& values, const std::string& help);
  /// With a function that takes the value; its error is told as one of this option.
  Option AddOption(const std::string& name, std::function<Status(const std::string&)> take,
                   const std::string& help);
  /// A whole number from `least` to `most`; the error for anything else names the option and them.
  Option AddNumber(const std::string& name, const std::string& help, uint64_t least, uint64_t most,
                   std::function<void(uint64_t)> set);
  void AddFlag(const std::string& name, bool& value, const std::string& help);
  /// All words after the line's first "--", as they are; no other command takes any.
  void TakesRest(std::vector<std::string>& words);
  /// What help shows at its end.
  void Footer(const std::string& text);
  /// What is done when the line names this command, after all of the line was understood.
  void Runs(Action action);

 private:
  CLI::App* app_;
  Action* chosen_;
  Rests* rests_;
};

/// The whole line: a program with commands.
class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& what_it_does, const std::string& version);
  ~CommandLine();

  Command root() { return Command(app_.get(), &chosen_, &rests_); }
  std::string Help() const;
  /// All commands, as far as they have been added.
  Grammar grammar() const;

  /// What is wrong with a line.
  struct UsageError {
    std::string message;
    std::string command;  ///< the one that it is about: "imgcli dataset convert"
  };
  struct Parsed {
    std::optional<int> exit_code;     ///< help or the version was asked for, and printed to `out`
    std::optional<UsageError> error;  ///< nothing may be run
    Action action;                    ///< of the command that was named; empty where none was
  };
  Parsed Parse(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

 private:
  /// How many words there are before the "--" that a command of ours takes the rest after; else all of them.
  int WordsToParse(int argc, const char* const* argv) const;

  std::unique_ptr<CLI::App> app_;
  Action chosen_;
  Command::Rests rests_;
};

}  // namespace imgd::cli
