#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "cli/app.h"
#include "cli/screen.h"
#include "common/grpc_locks.h"

namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = FromEnvironment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int TerminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// A pipe's reader has ended: `imgcli watch 12 | head -n 1` must not wait for the next event to notice.
bool ReaderIsGone() {
  pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

std::unique_ptr<imgd::cli::Screen> OpenScreen() {
  auto screen = imgd::cli::OpenTerminalScreen();
  return screen ? std::move(*screen) : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  // `imgcli jobs | head` ends as any tool does, also where a parent has ignored the signal.
  std::signal(SIGPIPE, SIG_DFL);
  std::ios::sync_with_stdio(false);
  imgd::LockWithoutDeadlockSearch();
  const imgd::cli::Terminal terminal{
      .is_terminal = isatty(STDOUT_FILENO) == 1 && FromEnvironment("TERM") != "dumb",
      .err_is_terminal = isatty(STDERR_FILENO) == 1,
      .utf8 = LocaleIsUtf8(),
      .width = TerminalWidth,
  };
  return imgd::cli::Run(argc, argv,
                        imgd::cli::Host{.in = std::cin,
                                        .out = std::cout,
                                        .err = std::cerr,
                                        .terminal = terminal,
                                        .env = FromEnvironment,
                                        .take_signals = true,
                                        .reader_is_gone = ReaderIsGone,
                                        .open_screen = OpenScreen});
}
