#include "cli/session_terminal.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace imgd::cli {

RawTerminal::RawTerminal() {
  known_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
  Enter();
}

RawTerminal::~RawTerminal() { Leave(); }

void RawTerminal::Leave() const {
  // At once: what was written may be read by nobody.
  if (known_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void RawTerminal::Enter() {
  if (!known_) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

v1::SessionWindow WindowSize() {
  winsize size{};
  v1::SessionWindow window;
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  window.set_rows(known ? size.ws_row : 24);
  window.set_columns(known ? size.ws_col : 80);
  return window;
}

std::string EscapeFilter::Take(std::string_view typed, bool& leave) {
  std::string out;
  for (const char key : typed) {
    if (tilde_) {
      tilde_ = false;
      if (key == '.') {
        leave = true;
        return out;
      }
      out += '~';
      line_start_ = false;
      if (key == '~') continue;
    } else if (key == '~' && line_start_) {
      tilde_ = true;
      continue;
    }
    out += key;
    line_start_ = key == '\r' || key == '\n';
  }
  return out;
}

Result<UniqueFd> TakeWindowSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGWINCH, SIGCONT}) sigaddset(&set, signal);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return FailErrno(errno, "cannot wait for signals");
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return fd;
}

}  // namespace imgd::cli
