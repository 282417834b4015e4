// What the agent has of the system: of the one that runs, where one does, since the unit gives it other
// limits than a shell has.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "agent/cgroup.h"
#include "agent/doctor/facts.h"
#include "agent/health.h"
#include "common/files.h"

namespace imgd::doctor {
namespace {

namespace fs = std::filesystem;

/// A process's folder, "self" for this one.
fs::path FolderOf(const fs::path& root, const std::string& process) {
  return root / "proc" / (process.empty() ? "self" : process);
}

/// Of proc_pid_limits(5): "Max open files   SOFT   HARD   files". Nothing: unlimited, or not said.
std::optional<uint64_t> HardLimit(const std::string& limits, std::string_view name) {
  const auto at = limits.find(name);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(limits.substr(at + name.size()));
  std::string soft;
  uint64_t hard = 0;
  if (words >> soft >> hard) return hard;
  return std::nullopt;
}

/// Inodes of the sockets that listen on the port, of proc_pid_net(5)'s tcp and tcp6.
std::set<std::string> ListenersOn(int port, const fs::path& net) {
  const std::string end = fmt::format(":{:04X}", port);
  std::set<std::string> inodes;
  for (const char* name : {"tcp", "tcp6"}) {
    std::istringstream lines(ReadFile(net / name).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
          inode;
      if (words && state == "0A" && local.ends_with(end)) inodes.insert(inode);
    }
  }
  return inodes;
}

/// Libraries of a gang that this list of folders puts before the ones that belong to the trainer.
std::vector<std::string> LibrariesInTheWay(std::string list) {
  std::vector<std::string> found;
  for (list += ':'; !list.empty(); list.erase(0, list.find(':') + 1)) {
    const fs::path folder = list.substr(0, list.find(':'));
    std::error_code error;
    for (const char* name :
         {"libnccl.so.2", "libcudart.so.12", "libcudart.so.13", "libcudnn.so.9", "libtorch_cpu.so"}) {
      if (!folder.empty() && fs::exists(folder / name, error)) found.push_back((folder / name).native());
    }
  }
  return found;
}

/// LD_LIBRARY_PATH of the agent that runs; else, and where nobody may look, of this process.
std::string LibraryPath(const NodeFacts& facts, const fs::path& root) {
  constexpr std::string_view kVariable = "LD_LIBRARY_PATH=";
  const auto environment = ReadFile(FolderOf(root, facts.agent) / "environ");
  if (facts.agent.empty() || !environment) {
    const char* own = std::getenv("LD_LIBRARY_PATH");
    return own == nullptr ? "" : own;
  }
  std::istringstream variables(*environment);
  for (std::string one; std::getline(variables, one, '\0');) {
    if (one.starts_with(kVariable)) return one.substr(kVariable.size());
  }
  return "";
}

}  // namespace

std::string AgentOn(const fs::path& state_dir, const fs::path& root) {
  struct stat lock {};
  if (::stat((state_dir / "agent.lock").c_str(), &lock) != 0) return "";
  const std::string inode = fmt::format(":{}", lock.st_ino);
  std::istringstream lines(ReadFile(root / "proc/locks").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, access, pid, place;
    words >> number >> kind >> advice >> access >> pid >> place;
    if (!words || kind != "FLOCK" || !place.ends_with(inode)) continue;
    if (ReadFile(root / "proc" / pid / "comm").value_or("") == "imgagent\n") return pid;
  }
  return "";
}

bool ListensOn(const std::string& process, int port, const fs::path& root) {
  const auto folder = FolderOf(root, process);
  const auto listeners = ListenersOn(port, folder / "net");
  std::error_code error;
  fs::directory_iterator files(folder / "fd", error);
  if (error) return !listeners.empty();
  for (const auto& file : files) {
    const std::string target = fs::read_symlink(file.path(), error).native();
    if (target.starts_with("socket:[") && listeners.contains(target.substr(8, target.size() - 9)))
      return true;
  }
  return false;
}

void GatherLimits(const Config& config, NodeFacts& facts, const fs::path& root) {
  const auto limits = ReadFile(FolderOf(root, facts.agent) / "limits").value_or("");
  facts.open_files = HardLimit(limits, "Max open files").value_or(0);
  facts.locked_bytes = HardLimit(limits, "Max locked memory");
  std::error_code error;
  const fs::path rdma = root / "sys/class/infiniband";
  facts.has_rdma = fs::exists(rdma, error) && !fs::is_empty(rdma, error);
  struct statvfs shm {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) == 0)
    facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  if (const auto free = ThisMachine().memory_free()) facts.memory_free_bytes = *free;
  if (!config.use_cgroup) return;
  auto group = Cgroup::Create(fmt::format("imgagent-doctor-{}", ::getpid()),
                              facts.agent.empty() ? "self" : facts.agent);
  if (group) {
    group->Remove();
  } else {
    facts.cgroup_error = group.error().ToString();
  }
}

void GatherLibraries(NodeFacts& facts, const fs::path& root) {
  facts.shadowing = LibrariesInTheWay(LibraryPath(facts, root));
}

}  // namespace imgd::doctor
