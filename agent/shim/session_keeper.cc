#include "agent/shim/session_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/event_loop.h"
#include "agent/landlock.h"
#include "agent/process.h"
#include "agent/run_dir.h"
#include "agent/shim/rank.h"
#include "agent/unix_user.h"
#include "common/files.h"

namespace imgd {
namespace {

/// How often what is left is looked for again, when no signal tells.
constexpr auto kLookAgain = std::chrono::milliseconds(50);

/// As whom a session's program runs, and what it sees.
struct Place {
  UnixUser user;
  UniqueFd ruleset;  ///< none: all
};

Result<Place> PlaceOf(const SessionKeeperOptions& options) {
  Place place;
  if (options.run_dir.empty()) return place;
  const RunDir dir{options.run_dir};
  IMGD_ASSIGN(const RunSpec spec, LoadRunSpec(dir));
  place.user = spec.user;
  if (spec.paths.limited) {
    IMGD_ASSIGN(place.ruleset, MakeRuleset(PathsOfRanks(spec, dir)));
  }
  return place;
}

/// In the child, which shares nothing with the keeper but its standard streams.
[[noreturn]] void ExecSession(const SessionKeeperOptions& options, char** arguments, char** environment,
                              pid_t keeper, int report, const Place& place) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The keeper may have died before the line above took effect.
  if (::getppid() != keeper) ::_exit(127);
  ::setsid();
  if (options.terminal) ::ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::environ = environment;  // execvp looks for PATH there
  // Nobody has what the agent may for the sake of ranks of other users.
  int error = Become(place.user);
  if (error == 0 && place.ruleset.valid()) error = Restrict(place.ruleset.get());
  if (error == 0) ::execvp(options.program.c_str(), arguments);
  if (error == 0) error = errno;
  (void)!::write(report, &error, sizeof error);
  ::_exit(127);
}

std::vector<char*> PointersTo(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (auto& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

Result<std::vector<std::string>> TakeEnvironment() {
  const UniqueFd file(kKeeperEnvironmentFd);
  std::string text;
  std::array<char, 16 << 10> piece{};
  ssize_t got = 0;
  while ((got = ::pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(text.size()))) > 0)
    text.append(piece.data(), static_cast<size_t>(got));
  if (got < 0) return FailErrno(errno, "cannot read the program's environment");
  std::vector<std::string> entries;
  for (size_t at = 0; at < text.size(); at += entries.back().size() + 1)
    entries.push_back(text.substr(at, text.find('\0', at) - at));
  return entries;
}

class SessionKeeper {
 public:
  SessionKeeper(EventLoop* loop, Duration grace) : loop_(loop), grace_(grace) {}

  /// Starts the program; false where it can't be run, which the agent has been told.
  bool Start(const SessionKeeperOptions& options) {
    const auto place = PlaceOf(options);
    int fds[2];
    if (!place || ::pipe2(fds, O_CLOEXEC) != 0) return Refuse(place ? errno : EACCES);
    const UniqueFd report(fds[0]);
    UniqueFd report_write(fds[1]);
    auto words = options.arguments;
    auto entries = options.environment;
    auto arguments = PointersTo(words);
    auto environment = PointersTo(entries);
    const pid_t self = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) return Refuse(errno);
    if (pid_ == 0)
      ExecSession(options, arguments.data(), environment.data(), self, report_write.get(), *place);
    report_write.reset();
    LetGoOfStreams();
    int error = 0;
    ssize_t got = 0;
    do {
      got = ::read(report.get(), &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    if (got == sizeof error) return Refuse(error);
    Say(fmt::format("{} {}", kKeeperStarted, pid_));
    return true;
  }

  void OnSignal(int signal) {
    if (signal == SIGTERM) End();
    if (signal == SIGCHLD) Reap();
  }

  /// The agent says nothing: its end is closed.
  void OnSocket() {
    char byte = 0;
    if (::recv(kKeeperSocketFd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR)) return;
    loop_->Unwatch(kKeeperSocketFd);
    End();
  }

 private:
  static void Say(const std::string& message) {
    (void)!::send(kKeeperSocketFd, message.data(), message.size(), MSG_NOSIGNAL);
  }

  static bool Refuse(int error) {
    Say(fmt::format("{} {}", kKeeperFailed, error));
    return false;
  }

  /// Only the program and what it starts hold them: their end is the output's.
  static void LetGoOfStreams() {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int fd = 0; fd < 3; ++fd) ::dup2(null.get(), fd);
  }

  void End() {
    if (std::exchange(ending_, true)) return;
    for (const pid_t pid : DescendantsOf(::getpid())) {
      ::kill(pid, SIGHUP);
      ::kill(pid, SIGCONT);  // one that is stopped can't obey
    }
    loop_->After(grace_, [this] { KillAll(); });
    Reap();
  }

  void KillAll() {
    for (const pid_t pid : DescendantsOf(::getpid())) ::kill(pid, SIGKILL);
    loop_->After(kLookAgain, [this] { KillAll(); });  // what was being forked meanwhile
    Reap();
  }

  void Reap() {
    while (true) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) break;  // as the subreaper: nobody is left
      if (info.si_pid == 0) {
        if (exited_) End();
        return;
      }
      if (info.si_pid != pid_) continue;
      exited_ = true;
      (info.si_code == CLD_EXITED ? exit_code_ : signal_) = info.si_status;
    }
    Say(fmt::format("{} {} {}", kKeeperEnded, exit_code_, signal_));
    loop_->Stop();
  }

  EventLoop* loop_;
  Duration grace_;
  pid_t pid_ = 0;  ///< the program's
  bool exited_ = false;
  int exit_code_ = 0;
  int signal_ = 0;
  bool ending_ = false;
};

UniqueFd BlockKeeperSignals() {
  for (const int signal : {SIGPIPE, SIGHUP, SIGINT}) ::signal(signal, SIG_IGN);
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  sigaddset(&taken, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  return UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

Status RunSessionKeeper(const SessionKeeperOptions& options) {
  ::prctl(PR_SET_NAME, "imgagent-sess");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return FailErrno(errno, "cannot become a subreaper");
  const UniqueFd signals = BlockKeeperSignals();
  if (!signals.valid()) return FailErrno(errno, "cannot make a signal descriptor");
  IMGD_ASSIGN(const auto loop, EventLoop::Create());
  SessionKeeper keeper(loop.get(), options.grace);
  IMGD_TRY(loop->Watch(signals.get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      keeper.OnSignal(static_cast<int>(info.ssi_signo));
  }));
  IMGD_TRY(loop->Watch(kKeeperSocketFd, EPOLLIN, [&](uint32_t) { keeper.OnSocket(); }));
  if (keeper.Start(options)) loop->Run();
  return {};
}

}  // namespace

int SessionKeeperMain(SessionKeeperOptions options) {
  ::fcntl(kKeeperSocketFd, F_SETFD, FD_CLOEXEC);
  const auto ran = [&]() -> Status {
    IMGD_ASSIGN(options.environment, TakeEnvironment());
    return RunSessionKeeper(options);
  }();
  if (!ran) std::fprintf(stderr, "imgagent-shim: %s\n", ran.error().ToString().c_str());
  return ran ? 0 : 1;
}

}  // namespace imgd
