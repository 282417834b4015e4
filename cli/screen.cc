#include "cli/screen.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>

#include "common/files.h"

namespace imgd::cli {
namespace {

// The other screen, no cursor; and back.
constexpr std::string_view kEnterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// How long the rest of a key's bytes may take.
constexpr int kKeyMilliseconds = 40;

class TerminalScreen final : public Screen {
 public:
  TerminalScreen(const termios& before, UniqueFd signals, UniqueFd wake)
      : before_(before), signals_(std::move(signals)), wake_(std::move(wake)) {}
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;
  ~TerminalScreen() override { Leave(); }

  Size GetSize() override {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {.columns = 80, .lines = 24};
    return {.columns = size.ws_col, .lines = size.ws_row};
  }

  bool Write(const std::string& bytes) override {
    if (!entered_) Enter();
    return WriteAll(bytes);
  }

  Input Wait(Instant until) override {
    std::array<pollfd, 3> fds = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                  {.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const int limit = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
    Input input;
    const int ready =
        poll(fds.data(), fds.size(), keys_.Pending() ? std::min(limit, kKeyMilliseconds) : limit);
    if (ready == 0 && keys_.Pending()) input.keys = keys_.Settle();
    if (ready <= 0) return input;
    if (fds[2].revents != 0) Drain();
    if (fds[1].revents != 0) TakeSignal(input);
    if (fds[0].revents != 0) ReadKeys(input);
    return input;
  }

  void Wake() override {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }

  void GiveBack() override {
    if (!entered_.exchange(false)) return;
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    tcflush(STDIN_FILENO, TCIFLUSH);
    // What was written before may be read by nobody; that is not waited for.
    pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    if (poll(&out, 1, 0) > 0) WriteAll(kLeaveScreen);
  }

 private:
  void Enter() {
    termios raw = before_;
    // Ctrl-C and Ctrl-Z stay signals.
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    WriteAll(kEnterScreen);
    entered_ = true;
  }

  void Leave() {
    if (!entered_.exchange(false)) return;
    WriteAll(kLeaveScreen);
    // What was typed and not read is not for the shell.
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }

  static bool WriteAll(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  void Drain() {
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
  }

  void TakeSignal(Input& input) {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTSTP) Suspend();
    if (signal == SIGHUP || signal == SIGQUIT) input.signal = signal;
    input.redraw = true;
  }

  /// All threads stand until somebody says fg.
  void Suspend() {
    Leave();
    kill(getpid(), SIGSTOP);
  }

  void ReadKeys(Input& input) {
    std::array<char, 256> bytes{};
    const ssize_t got = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got > 0) {
      input.keys = keys_.Take({bytes.data(), static_cast<size_t>(got)});
    } else if (got == 0 || errno != EINTR) {
      input.signal = SIGHUP;  // nobody is there any more
    }
  }

  const termios before_;
  const UniqueFd signals_;
  const UniqueFd wake_;
  KeyReader keys_;
  std::atomic<bool> entered_ = false;
};

}  // namespace

Result<std::unique_ptr<Screen>> OpenTerminalScreen() {
  termios before{};
  if (isatty(STDOUT_FILENO) != 1 || tcgetattr(STDIN_FILENO, &before) != 0)
    return Fail(ErrorCode::kFailedPrecondition, "standard input and output are no terminal");
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGWINCH, SIGTSTP, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals.valid() || !wake.valid())
    return Fail(ErrorCode::kResourceExhausted, "no more files can be opened");
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return std::make_unique<TerminalScreen>(before, std::move(signals), std::move(wake));
}

}  // namespace imgd::cli
