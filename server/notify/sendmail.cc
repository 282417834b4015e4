#include "server/notify/sendmail.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/files.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr auto kGraceOfStop = std::chrono::seconds(2);

/// posix_spawn's two option objects: own group, no file but the standard ones, signals as a program expects
/// them.
struct SpawnSettings {
  SpawnSettings(int in, int out) {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    sigset_t none;
    sigset_t ignored;
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGXFSZ);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return FailErrno(errno, "cannot make a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// A program waits at its ends of pipes.
void MakeBlocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) (void)::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/// The end of what a program says, taken from the pipe as it comes: nobody waits for room in it.
class LastWords {
 public:
  explicit LastWords(UniqueFd pipe) : pipe_(std::move(pipe)) {}
  /// To be polled; -1 once nothing can come any more.
  int fd() const { return pipe_.get(); }
  /// What is there now; more than a pipe holds is never, but for one who goes on and on.
  void Take() {
    constexpr size_t kKeptBytes = 4096;
    constexpr int kMostPieces = 64;
    std::array<char, kKeptBytes> piece{};
    for (int i = 0; i < kMostPieces && pipe_.valid(); ++i) {
      const ssize_t got = ::read(pipe_.get(), piece.data(), piece.size());
      if (got == 0) pipe_.reset();
      if (got <= 0) return;
      text_.append(piece.data(), static_cast<size_t>(got));
      if (text_.size() > kKeptBytes) text_.erase(0, text_.size() - kKeptBytes);
    }
  }
  std::string Line() const {
    std::string_view line = Trimmed(text_, " \t\r\n");
    line.remove_prefix(std::min(line.rfind('\n') + 1, line.size()));
    std::string out(line.substr(0, 200));
    std::replace_if(
        out.begin(), out.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
    return out;
  }
  /// To end a sentence with.
  std::string Said() const { return Line().empty() ? "" : ": " + Line(); }

 private:
  UniqueFd pipe_;
  std::string text_;
};

/// Until the process has ended; false when it was killed for it.
bool WaitForEnd(pid_t pid, Instant deadline, const std::stop_token& stop, LastWords& words) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  bool told = false;
  while (true) {
    if (stop.stop_requested() && !told) {
      told = true;
      deadline = std::min(deadline, std::chrono::steady_clock::now() + kGraceOfStop);
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    // In short pieces, so that a stop is seen.
    std::array<pollfd, 2> fds = {{{.fd = process.get(), .events = POLLIN, .revents = 0},
                                  {.fd = words.fd(), .events = POLLIN, .revents = 0}}};
    (void)::poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left.count(), 100)));
    words.Take();
    if (fds[0].revents != 0) return true;
  }
  ::kill(-pid, SIGKILL);
  return false;
}

/// Other codes may come of settings or of an outage: programs that speak to one server end with EX_DATAERR
/// for whatever it refuses, as who has not logged in, and with EX_NOHOST while its name can't be resolved.
bool IsFaultOfAddress(int exit_code) { return exit_code == EX_NOUSER; }

}  // namespace

Result<std::string> RunWithInput(const std::vector<std::string>& arguments, const std::string& input,
                                 Duration timeout, const std::stop_token& stop) {
  IMGD_ASSIGN(Pipe in, MakePipe());
  IMGD_ASSIGN(Pipe out, MakePipe());
  MakeBlocking(in.read.get());
  MakeBlocking(out.write.get());
  // All of it fits in: nothing here waits for the program to read.
  if (::write(in.write.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size()))
    return FailErrno(errno, "cannot hand over a message");
  const SpawnSettings settings(in.read.get(), out.write.get());
  std::vector<char*> words;
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, arguments.front().c_str(), &settings.files, &settings.attributes,
                                  words.data(), environ);
  if (error != 0) return FailErrno(error, "cannot start " + arguments.front());
  in = {};
  out.write = {};
  LastWords said(std::move(out.read));
  const bool ended = WaitForEnd(pid, std::chrono::steady_clock::now() + timeout, stop, said);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return Fail(ErrorCode::kDeadlineExceeded, "{} took too long and was ended{}", arguments.front(),
                said.Said());
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said.Line();
  const std::string how = WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                                            : fmt::format("signal {}", WTERMSIG(status));
  const bool for_good = WIFEXITED(status) && IsFaultOfAddress(WEXITSTATUS(status));
  return Fail(for_good ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable, "{} ended with {}{}",
              arguments.front(), how, said.Said());
}

}  // namespace imgd
