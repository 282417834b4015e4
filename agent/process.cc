#include "agent/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "agent/cgroup.h"

namespace imgd {
namespace {

/// The numbers among the names in /proc.
std::vector<pid_t> AllPids() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (proc == nullptr) return pids;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

bool HasEnvironment(pid_t pid, std::string_view variable) {
  const auto environment = ReadFile(fmt::format("/proc/{}/environ", pid));
  if (!environment) return false;
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry == variable) return true;
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return false;
}

std::string LastLineOf(const std::filesystem::path& path) {
  const auto text = ReadFile(path);
  if (!text) return text.error().message;
  std::istringstream in(*text);
  std::string line;
  std::string last = "it said nothing";
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

/// posix_spawn's two option objects, destroyed with it.
struct SpawnOptions {
  SpawnOptions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

/// No signal blocked, ignored or handled: the agent's own settings are not the shim's.
void ResetSignals(posix_spawnattr_t* attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/// The descriptors that a shim is given have fixed numbers, above those of its standard streams.
constexpr int kShimLockFd = 3;
constexpr int kShimMasterFd = 4;
/// Where they are parked first, so that putting one in its place never closes the other.
constexpr int kParkingFd = 100;

/// A copy of `fd` with a number that can't collide with the shim's fixed ones.
UniqueFd Park(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, kParkingFd)); }

}  // namespace

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  const auto text = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!text) return std::nullopt;
  // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
  const auto name_end = text->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(name_end + 1));
  ProcessStat stat;
  stat.pid = pid;
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  return stat;
}

bool SaysCoreDumping(std::string_view status) {
  return status.find("\nCoreDumping:\t1\n") != std::string_view::npos;
}

bool IsDumpingCore(pid_t pid) {
  const auto text = ReadFile(fmt::format("/proc/{}/status", pid));
  return text && SaysCoreDumping(*text);
}

std::vector<ProcessStat> AllProcesses() {
  std::vector<ProcessStat> processes;
  for (const pid_t pid : AllPids()) {
    if (const auto stat = ReadProcessStat(pid)) processes.push_back(*stat);
  }
  return processes;
}

std::vector<pid_t> DescendantsOf(pid_t root) {
  std::multimap<pid_t, ProcessStat> children;
  for (const auto& process : AllProcesses()) children.emplace(process.parent, process);
  std::vector<pid_t> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto it = begin; it != end; ++it) {
      open.push_back(it->second.pid);
      if (!it->second.IsDead()) found.push_back(it->second.pid);
    }
  }
  return found;
}

bool IsAlive(pid_t pid, uint64_t start_time) {
  const auto stat = ReadProcessStat(pid);
  return stat && stat->start_time == start_time && !stat->IsDead();
}

std::string BootId() {
  auto id = ReadFile("/proc/sys/kernel/random/boot_id");
  if (!id) return "";
  id->erase(std::remove(id->begin(), id->end(), '\n'), id->end());
  return *id;
}

std::vector<pid_t> LeftoverProcesses(const RunDir& dir, const std::optional<RunRecord>& record) {
  std::set<pid_t> found;
  if (record && record->boot_id == BootId()) {
    for (const auto& rank : record->ranks) {
      const auto pid = static_cast<pid_t>(rank.pid);
      if (rank.state == RankState::kRunning && IsAlive(pid, rank.start_time)) found.insert(pid);
    }
  }
  if (record && !record->cgroup.empty()) {
    for (const pid_t pid : Cgroup(record->cgroup).Processes()) found.insert(pid);
  }
  const std::string variable = "IMGD_RUN_DIR=" + dir.Ranks().native();
  for (const pid_t pid : AllPids()) {
    if (HasEnvironment(pid, variable)) found.insert(pid);
  }
  std::erase_if(found, [](pid_t pid) {
    const auto stat = ReadProcessStat(pid);
    return !stat || stat->IsDead();
  });
  return {found.begin(), found.end()};
}

UniqueFd PidfdOpen(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void PidfdSignal(int pidfd, int signal) { ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0); }

Result<UniqueFd> LockShim(const RunDir& dir) {
  UniqueFd fd(::open(dir.Lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", dir.Lock().native()));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return Fail(ErrorCode::kAlreadyExists, "the run's shim is alive");
  return FailErrno(errno, fmt::format("cannot lock {}", dir.Lock().native()));
}

Status StartShim(const ShimStart& start) {
  SpawnOptions options;
  const UniqueFd lock = Park(start.lock_fd);
  const UniqueFd master = start.master_fd >= 0 ? Park(start.master_fd) : UniqueFd();
  const std::string log = start.dir.ShimLog();
  posix_spawn_file_actions_addopen(&options.files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&options.files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0640);
  posix_spawn_file_actions_adddup2(&options.files, 1, 2);
  posix_spawn_file_actions_adddup2(&options.files, lock.get(), kShimLockFd);
  if (master.valid()) posix_spawn_file_actions_adddup2(&options.files, master.get(), kShimMasterFd);
  posix_spawn_file_actions_addclosefrom_np(&options.files,
                                           master.valid() ? kShimMasterFd + 1 : kShimLockFd + 1);
  ResetSignals(&options.attributes);

  std::vector<std::string> words = {"imgagent-shim", start.dir.path.native(), std::to_string(kShimLockFd)};
  if (master.valid()) words.push_back(std::to_string(kShimMasterFd));
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, start.program.c_str(), &options.files, &options.attributes,
                                  arguments.data(), environ);
  if (error != 0) return FailErrno(error, fmt::format("cannot run {}", start.program.native()));
  // The first process ends as soon as the shim, its child, listens.
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Fail(ErrorCode::kInternal, "the run's shim did not start: {}", LastLineOf(start.dir.ShimLog()));
}

}  // namespace imgd
