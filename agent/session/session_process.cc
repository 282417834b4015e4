#include "agent/session/session_process.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "agent/shim/session_keeper.h"

namespace imgd {
namespace {

/// Where descriptors are parked first, so that putting one in its place never closes another.
constexpr int kParkedFd = 100;

struct Ends {
  UniqueFd ours;
  UniqueFd theirs;
};

UniqueFd Parked(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, kParkedFd)); }

Result<Ends> MakeEnds(bool they_read) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno(errno, "cannot make a pipe");
  UniqueFd read(fds[0]);
  UniqueFd write(fds[1]);
  UniqueFd theirs = Parked((they_read ? read : write).get());
  if (!theirs.valid()) return FailErrno(errno, "cannot make a pipe");
  return Ends{they_read ? std::move(write) : std::move(read), std::move(theirs)};
}

Result<Ends> MakeTerminal(TerminalSize size) {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.valid() || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    return FailErrno(errno, "cannot make a terminal");
  std::array<char, 128> name{};
  if (const int error = ::ptsname_r(master.get(), name.data(), name.size()); error != 0)
    return FailErrno(error, "cannot make a terminal");
  const UniqueFd slave(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave.valid()) return FailErrno(errno, "cannot open the terminal");
  const winsize window{size.rows, size.columns, 0, 0};
  ::ioctl(slave.get(), TIOCSWINSZ, &window);
  UniqueFd theirs = Parked(slave.get());
  if (!theirs.valid()) return FailErrno(errno, "cannot open the terminal");
  return Ends{std::move(master), std::move(theirs)};
}

/// The program's standard streams, and our ends of them in `process`.
Result<std::array<UniqueFd, 3>> MakeStreams(const std::optional<TerminalSize>& terminal,
                                            SessionProcess& process) {
  std::array<UniqueFd, 3> theirs;
  if (terminal) {
    IMGD_ASSIGN(Ends ends, MakeTerminal(*terminal));
    process.terminal = true;
    process.input = UniqueFd(::fcntl(ends.ours.get(), F_DUPFD_CLOEXEC, 0));
    process.output = std::move(ends.ours);
    for (auto& fd : theirs) fd = Parked(ends.theirs.get());
  } else {
    for (int i = 0; i < 3; ++i) {
      IMGD_ASSIGN(Ends ends, MakeEnds(i == 0));
      UniqueFd& ours = i == 0 ? process.input : i == 1 ? process.output : process.error;
      ours = std::move(ends.ours);
      theirs[static_cast<size_t>(i)] = std::move(ends.theirs);
    }
  }
  for (const auto* fd : {&process.input, &process.output, &process.error}) {
    if (fd->valid()) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  }
  return theirs;
}

/// A file that only its holders see, with the entries and a NUL after each.
Result<UniqueFd> EnvironmentFile(const std::vector<std::string>& entries) {
  const UniqueFd file(::memfd_create("environment", MFD_CLOEXEC));
  std::string text;
  for (const auto& entry : entries) text.append(entry).push_back('\0');
  IMGD_TRY(WriteAll(file.get(), text, "the program's environment"));
  UniqueFd parked = Parked(file.get());
  if (!parked.valid()) return FailErrno(errno, "cannot keep the program's environment");
  return parked;
}

/// posix_spawn's options for a keeper, destroyed with it.
class KeeperSpawn {
 public:
  KeeperSpawn(const std::array<UniqueFd, 3>& streams, int control, int environment,
              const std::filesystem::path& folder) {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    for (int i = 0; i < 3; ++i)
      posix_spawn_file_actions_adddup2(&files_, streams[static_cast<size_t>(i)].get(), i);
    posix_spawn_file_actions_adddup2(&files_, control, kKeeperSocketFd);
    posix_spawn_file_actions_adddup2(&files_, environment, kKeeperEnvironmentFd);
    posix_spawn_file_actions_addclosefrom_np(&files_, kKeeperEnvironmentFd + 1);
    posix_spawn_file_actions_addchdir_np(&files_, folder.c_str());
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  }
  ~KeeperSpawn() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  KeeperSpawn(const KeeperSpawn&) = delete;
  KeeperSpawn& operator=(const KeeperSpawn&) = delete;

  /// With this process's own environment.
  int Run(pid_t* pid, const std::filesystem::path& program, std::vector<std::string> arguments) {
    std::vector<char*> words;
    words.reserve(arguments.size() + 1);
    for (auto& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    return ::posix_spawn(pid, program.c_str(), &files_, &attributes_, words.data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

/// The user that this process runs as, as far as the system knows one.
struct UserEntry {
  std::string name, folder, shell;
};
UserEntry ThisUser() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> text{};
  if (::getpwuid_r(::geteuid(), &entry, text.data(), text.size(), &found) != 0 || found == nullptr) return {};
  return {found->pw_name, found->pw_dir, found->pw_shell};
}

/// Variables that belong to the agent's own service, or that a run's processes are told apart by.
bool IsAgents(std::string_view entry) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "NOTIFY_SOCKET", "WATCHDOG_USEC",  "WATCHDOG_PID", "LISTEN_FDS",
      "LISTEN_PID",    "LISTEN_FDNAMES", "INVOCATION_ID"};
  const std::string_view name = entry.substr(0, entry.find('='));
  return name.starts_with("IMGD_") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

Result<SessionProcess> StartSessionProcess(const std::filesystem::path& keeper, const SessionProgram& program,
                                           Duration grace) {
  SessionProcess process;
  IMGD_ASSIGN(const auto streams, MakeStreams(program.terminal, process));
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    return FailErrno(errno, "cannot make a socket");
  process.control = UniqueFd(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  const UniqueFd control = Parked(theirs.get());
  ::fcntl(process.control.get(), F_SETFL, O_NONBLOCK);

  const auto grace_ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
  std::vector<std::string> arguments = {
      "imgagent-shim",          "--session",    program.terminal ? "tty" : "pipes", std::to_string(grace_ms),
      program.run_dir.native(), program.program};
  arguments.insert(arguments.end(), program.arguments.begin(), program.arguments.end());
  IMGD_ASSIGN(const UniqueFd environment, EnvironmentFile(program.environment));
  KeeperSpawn spawn(streams, control.get(), environment.get(), program.folder);
  const int error = spawn.Run(&process.keeper, keeper, std::move(arguments));
  if (error != 0) {
    return FailErrno(
        error, fmt::format("cannot start {} in {}", program.arguments.front(), program.folder.native()));
  }
  return process;
}

void ResizeTerminal(const SessionProcess& process, TerminalSize size) {
  if (!process.terminal) return;
  const winsize window{size.rows, size.columns, 0, 0};
  ::ioctl(process.output.get(), TIOCSWINSZ, &window);
}

std::string ValueIn(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string_view entry : environment) {
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return std::string(entry.substr(name.size() + 1));
  }
  return "";
}

void SetIn(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::erase_if(environment, [name](std::string_view entry) {
    return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
  });
  environment.push_back(fmt::format("{}={}", name, value));
}

std::string UsersShell() {
  for (const std::string& shell : {ThisUser().shell, std::string("/bin/bash")}) {
    const bool refuses = shell.ends_with("/nologin") || shell.ends_with("/false");
    if (!shell.empty() && !refuses && ::access(shell.c_str(), X_OK) == 0) return shell;
  }
  return "/bin/sh";
}

std::vector<std::string> NodeSessionEnvironment(const std::vector<std::string>& inherited) {
  std::vector<std::string> environment;
  for (const auto& entry : inherited) {
    if (!IsAgents(entry)) environment.push_back(entry);
  }
  const UserEntry user = ThisUser();
  const auto fill = [&environment](std::string_view name, std::string_view value) {
    if (!value.empty() && ValueIn(environment, name).empty()) SetIn(environment, name, value);
  };
  fill("HOME", user.folder);
  fill("USER", user.name);
  fill("LOGNAME", user.name);
  SetIn(environment, "SHELL", UsersShell());
  fill("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  return environment;
}

Result<std::vector<std::string>> RankSessionEnvironment(pid_t rank) {
  IMGD_ASSIGN(const std::string text, ReadFile(fmt::format("/proc/{}/environ", rank)));
  std::vector<std::string> environment;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.starts_with("IMGD_RUN_DIR=") || entry.starts_with("IMGD_MASTER_FD=")) continue;
    if (!entry.empty()) environment.emplace_back(entry);
  }
  SetIn(environment, "SHELL", UsersShell());
  return environment;
}

std::filesystem::path FolderOf(pid_t pid) {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink(fmt::format("/proc/{}/cwd", pid), error);
  return !error && std::filesystem::is_directory(folder, error) ? folder : std::filesystem::path("/");
}

}  // namespace imgd
