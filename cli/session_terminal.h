#pragma once

#include <termios.h>

#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"
#include "imgd/v1/session.pb.h"

namespace imgd::cli {

/// The terminal on standard input, raw for as long as this lives: every key goes to the other side.
class RawTerminal {
 public:
  RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  /// Puts it back as it was.
  ~RawTerminal();

  /// The same from another thread, where this one is held up.
  void Leave() const;

  /// Once more, after somebody stopped this process and let it go on.
  void Enter();

 private:
  termios before_{};
  bool known_ = false;
};

/// Size of the terminal on standard output.
v1::SessionWindow WindowSize();

/// Looks for what is typed for imgcli itself, as ssh has it: "~." at the start of a line ends the session,
/// "~~" is one "~".
class EscapeFilter {
 public:
  /// What goes to the other side of what was typed; `leave` is set where nothing more does.
  std::string Take(std::string_view typed, bool& leave);

 private:
  bool line_start_ = true;
  bool tilde_ = false;  ///< one is held back
};

/// Signals that tell of the window, as a descriptor; they are blocked from here on. Call it before there are
/// threads. Errors: no descriptor.
Result<UniqueFd> TakeWindowSignals();

}  // namespace imgd::cli
