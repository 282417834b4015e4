#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/keys.h"
#include "common/clock.h"
#include "common/error.h"

namespace imgd::cli {

/// A terminal that a program has for itself from its first Write on. Used by one thread, but for Wake and
/// GiveBack. Its end gives the terminal back as it was.
class Screen {
 public:
  struct Size {
    int columns = 0;
    int lines = 0;
    bool operator==(const Size&) const = default;
  };

  /// What happened while it was waited.
  struct Input {
    std::vector<Key> keys;
    bool redraw = false;  ///< the screen is empty, or has another size
    int signal = 0;       ///< to end by; 0: none
  };

  virtual ~Screen() = default;

  virtual Size GetSize() = 0;
  /// Writes all of it. False when the terminal is gone.
  virtual bool Write(const std::string& bytes) = 0;
  /// Waits for keys, a signal, another size, Wake or the moment.
  virtual Input Wait(Instant until) = 0;
  /// Ends a Wait; thread-safe.
  virtual void Wake() = 0;
  /// Gives the terminal back at once, for a process that ends in the middle of something; thread-safe.
  virtual void GiveBack() = 0;
};

/// The terminal of standard input and output: its other screen, with no cursor, and keys as they are pressed.
/// Takes SIGWINCH, SIGTSTP (the terminal is given back, and taken again after), SIGHUP and SIGQUIT; SIGINT
/// and SIGTERM are left to Interrupt. Call it before other threads start: they inherit the signal mask.
/// Errors: kFailedPrecondition where either is no terminal.
Result<std::unique_ptr<Screen>> OpenTerminalScreen();

}  // namespace imgd::cli
