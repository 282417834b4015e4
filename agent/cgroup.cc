#include "agent/cgroup.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <sstream>

namespace imgd {
namespace {

constexpr char kMembers[] = "cgroup.procs";  ///< of a group: its processes

/// Where cgroup v2 is mounted, with the part of the hierarchy that the mount shows; proc_pid_mountinfo(5).
struct Mount {
  std::string root;
  std::string point;
};

std::optional<Mount> FindMount() {
  const auto text = ReadFile("/proc/self/mountinfo");
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos || line.compare(separator + 3, 8, "cgroup2 ") != 0) continue;
    std::istringstream fields(line);
    std::string skipped;
    Mount mount;
    fields >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    if (fields) return mount;
  }
  return std::nullopt;
}

/// The group of a process in the v2 hierarchy: the line "0::/path" of /proc/PID/cgroup.
std::optional<std::string> GroupOf(const std::string& process) {
  const auto text = ReadFile(fmt::format("/proc/{}/cgroup", process));
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return std::nullopt;
}

}  // namespace

Result<Cgroup> Cgroup::Create(const std::string& name, const std::string& process) {
  const auto mount = FindMount();
  auto own = GroupOf(process);
  if (!mount || !own) return Fail(ErrorCode::kFailedPrecondition, "no cgroup v2 hierarchy is mounted");
  if (mount->root != "/" && own->starts_with(mount->root)) own->erase(0, mount->root.size());
  if (*own == "/") own->clear();
  const std::filesystem::path path = mount->point + *own + "/" + name;
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return FailErrno(errno, fmt::format("cannot create cgroup {}", path.native()));
  }
  Cgroup group(path);
  const auto writable = [&path](const char* name) {
    return ::faccessat(AT_FDCWD, (path / name).c_str(), W_OK, AT_EACCESS) == 0;
  };
  if (!writable("cgroup.kill") || !writable(kMembers)) {
    group.Remove();
    return Fail(ErrorCode::kFailedPrecondition,
                "cgroup {} can't be used: cgroup.kill or cgroup.procs is not writable", path.native());
  }
  return group;
}

UniqueFd Cgroup::Open() const {
  if (!valid()) return UniqueFd();
  return UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void Cgroup::Kill() const {
  if (!valid()) return;
  const UniqueFd fd(::open((path_ / "cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (fd.valid()) (void)WriteAll(fd.get(), "1", "cgroup.kill");
}

std::vector<pid_t> Cgroup::Processes() const {
  std::vector<pid_t> pids;
  if (!valid()) return pids;
  const auto text = ReadFile(path_ / kMembers);
  if (!text) return pids;
  std::istringstream in(*text);
  pid_t pid = 0;
  while (in >> pid) pids.push_back(pid);
  return pids;
}

void Cgroup::Remove() const {
  if (valid()) ::rmdir(path_.c_str());
}

pid_t ForkInto(int group) {
  if (group < 0) return ::fork();
  // clone3(2): the C library has no fork that does this.
  clone_args into{};
  into.flags = CLONE_INTO_CGROUP;
  into.exit_signal = SIGCHLD;
  into.cgroup = static_cast<uint64_t>(group);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &into, sizeof into));
  if (pid >= 0) return pid;
  const pid_t forked = ::fork();
  if (forked == 0) {
    const int members = ::openat(group, kMembers, O_WRONLY | O_CLOEXEC);
    (void)!::write(members, "0", 1);
    ::close(members);
  }
  return forked;
}

}  // namespace imgd
