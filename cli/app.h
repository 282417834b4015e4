#pragma once

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/settings.h"

namespace imgd::cli {

class Screen;

/// What a run of the program is connected to; tests bring their own.
struct Host {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  Terminal terminal;
  Environment env;
  bool take_signals = false;             ///< commands that follow something handle Ctrl-C themselves
  std::function<bool()> reader_is_gone;  ///< nobody reads the standard output any more; absent: never
  /// The terminal, for a command that wants all of it; absent, or nullptr from it: there is none.
  std::function<std::unique_ptr<Screen>()> open_screen;
};

/// Runs the program: parses, does what is asked and returns the exit code (docs/exit-codes.md).
int Run(int argc, const char* const* argv, const Host& host);

/// The same in the process's environment, reading standard input, as if `out` were no terminal.
int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

/// What the commands share while one of them runs.
class Context {
 public:
  explicit Context(const Host& host) : host_(host), terminal_(host.terminal) {}

  // Options of every command.
  std::string server;               ///< --server; empty when not given
  std::optional<Duration> timeout;  ///< --timeout

  std::ostream& out() { return host_.out; }
  std::ostream& err() { return host_.err; }
  std::istream& in() { return host_.in; }
  const Environment& env() const { return host_.env; }
  Terminal& terminal() { return terminal_; }
  Interrupt& interrupt() { return interrupt_; }

  /// From here on Ctrl-C ends the following, not the process. Call it before the first call of the client.
  void FollowUntilInterrupted();

  /// The same for a session, which also ends when the terminal is gone, and soon where nobody reads what it
  /// writes. `quit`: SIGQUIT too, since a terminal has to be put back.
  void FollowSession(bool quit = false);

  /// Whatever is written to the standard output is lost.
  bool ReaderIsGone() const { return host_.reader_is_gone && host_.reader_is_gone(); }

  /// What a command that goes on for long ends with where nothing more can be written: 1 where nobody reads
  /// on; 0 for a full disk, which is said, and made 1, where every command ends. Nothing where all is well.
  std::optional<int> OutputIsOver() {
    if (ReaderIsGone()) return 1;
    if (!out()) return 0;
    return std::nullopt;
  }

  /// The terminal as a whole; nullptr where there is none. Call it before FollowUntilInterrupted.
  std::unique_ptr<Screen> OpenScreen();

  /// The client; nothing is connected yet. Errors: as ResolveServer.
  Reply<Client*> client();

  /// A line for people, to standard error.
  void Say(std::string_view text, Style style = Style::kPlain);

  /// What is wrong with the daemon itself, as its answers say; nothing when nothing is.
  void Warn(const std::string& warning) {
    if (!warning.empty()) Say("warning: " + warning, Style::kWarn);
  }

  /// Prints the errors, each on its line, and returns the exit code of the first. After an interrupt it is
  /// silent, and the code is the interrupt's.
  int Fail(const Errors& errors);

  /// "imgcli watch 12" with what is needed to reach the same daemon again.
  std::string Suggest(std::string_view command) const;

 private:
  const Host& host_;
  Terminal terminal_;
  Interrupt interrupt_;
  std::unique_ptr<Client> client_;
};

}  // namespace imgd::cli
