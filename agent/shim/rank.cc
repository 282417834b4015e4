#include "agent/shim/rank.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "agent/cgroup.h"
#include "agent/process.h"
#include "agent/program.h"

namespace imgd {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno(errno, "cannot make a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

/// Variables that belong to the agent's own service, or that say who a rank is.
bool IsOurs(std::string_view entry) {
  static constexpr std::array<std::string_view, 16> kNames = {
      "NOTIFY_SOCKET", "WATCHDOG_USEC",        "WATCHDOG_PID",     "LISTEN_FDS",
      "LISTEN_PID",    "LISTEN_FDNAMES",       "INVOCATION_ID",    "RANK",
      "WORLD_SIZE",    "LOCAL_RANK",           "LOCAL_WORLD_SIZE", "MASTER_ADDR",
      "MASTER_PORT",   "CUDA_VISIBLE_DEVICES", "GROUP_RANK",       "GROUP_WORLD_SIZE"};
  const std::string_view name = entry.substr(0, entry.find('='));
  return name.starts_with("IMGD_") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What the child is handed across fork.
struct Child {
  pid_t shim;
  int out;
  int err;
  int report;       ///< gets errno when the program can't be executed
  std::string dir;  ///< to run in
  const UnixUser* user;
  std::string program;
  std::vector<char*> arguments;
  std::vector<char*> environment;
};

void ResetSignals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void Report(const Child& child, int error) {
  (void)!::write(child.report, &error, sizeof error);
  ::_exit(127);
}

[[noreturn]] void Exec(const Child& child, const RankStart& start) {
  ::setpgid(0, 0);
  // Before standard error is the log: what goes wrong is told by the number alone.
  if (const int error = Become(*child.user); error != 0) Report(child, error);
  if (start.ruleset_fd >= 0) {
    if (const int error = Restrict(start.ruleset_fd); error != 0) Report(child, error);
  }
  // Only now: a process that changes its user is no longer told of its parent's death.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The shim may have died before the line above took effect.
  if (::getppid() != child.shim) ::_exit(127);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, 0);
  ::dup2(child.out, 1);
  ::dup2(child.err, 2);
  int first_closed = 3;
  if (start.master_fd >= 0) {
    if (start.master_fd == kRankMasterFd) {
      ::fcntl(kRankMasterFd, F_SETFD, 0);
    } else {
      ::dup2(start.master_fd, kRankMasterFd);
    }
    first_closed = kRankMasterFd + 1;
  }
  // Everything that the shim opens closes on exec; this is for what it may itself have inherited.
  ::close_range(static_cast<unsigned>(first_closed), ~0U, CLOSE_RANGE_CLOEXEC);
  ResetSignals();
  if (::chdir(child.dir.c_str()) == 0)
    ::execve(child.program.c_str(), child.arguments.data(), child.environment.data());
  Report(child, errno);
}

/// errno of the child's exec, 0 when it went well.
int ReadReport(int fd) {
  int error = 0;
  ssize_t n = 0;
  do {
    n = ::read(fd, &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  return n == sizeof error ? error : 0;
}

void SetVariable(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::erase_if(environment, [name](std::string_view entry) {
    return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
  });
  environment.push_back(fmt::format("{}={}", name, value));
}

/// What a program that is no trainer gets besides: the rest of torchrun's variables for its workers, and
/// where there is one process a node, by PET_*, torchrun's own options; last, what the job says itself.
void AddProgramVariables(const RunSpec& spec, std::vector<std::string>& environment) {
  const auto set = [&environment](std::string_view name, const auto& value) {
    SetVariable(environment, name, fmt::format("{}", value));
  };
  set("GROUP_RANK", spec.node_rank);
  set("GROUP_WORLD_SIZE", spec.node_count);
  set("IMGD_DEVICES", spec.devices.size());
  if (spec.program.per_node) {
    set("PET_NNODES", spec.node_count);
    set("PET_NODE_RANK", spec.node_rank);
    set("PET_NPROC_PER_NODE", spec.devices.size());
    set("PET_MASTER_ADDR", spec.master_address);
    set("PET_MASTER_PORT", spec.master_port);
  }
  for (const auto& [name, value] : spec.program.environment) set(name, value);
}

/// Trainers are all in one folder, since what CUDA's compiler makes has in it where it was made: the driver's
/// cache of kernels, which goes by that, would else have none for the next run, and each would take 9 s
/// longer to its first step (ResNet-50, H200). They open nothing by relative paths.
std::string FolderToRunIn(const RunSpec& spec, const RankStart& start) {
  if (spec.Trains()) return "/";
  return spec.program.dir.empty() ? RunDir{start.run_dir}.Ranks().native() : spec.program.dir;
}

/// What the rank executes, and its words.
Result<std::pair<std::string, std::vector<std::string>>> CommandOf(
    const RunSpec& spec, const RankStart& start, const std::vector<std::string>& environment) {
  if (spec.Trains())
    return std::pair(spec.trainer,
                     std::vector<std::string>{spec.trainer, RunDir{start.run_dir}.JobYaml().native()});
  IMGD_ASSIGN(auto program, ResolveProgram(spec.program.arguments.front(), environment));
  return std::pair(std::move(program), spec.program.arguments);
}

}  // namespace

std::vector<std::string> RankEnvironment(const RunSpec& spec, const RankStart& start,
                                         const std::vector<std::string>& inherited) {
  std::vector<std::string> environment;
  for (const auto& entry : inherited) {
    if (!IsOurs(entry)) environment.push_back(entry);
  }
  const auto set = [&](std::string_view name, const auto& value) {
    environment.push_back(fmt::format("{}={}", name, value));
  };
  set("RANK", spec.first_rank + start.local_rank);
  set("WORLD_SIZE", spec.world_size);
  set("LOCAL_RANK", start.local_rank);
  set("LOCAL_WORLD_SIZE", spec.local_world_size);
  set("MASTER_ADDR", spec.master_address);
  set("MASTER_PORT", spec.master_port);
  set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  set("CUDA_VISIBLE_DEVICES", spec.visible_devices);
  set("IMGD_RUN_DIR", RunDir{start.run_dir}.Ranks().native());
  set("IMGD_JOB_ID", spec.key.job);
  set("IMGD_JOB_NAME", spec.job_name);
  set("IMGD_GENERATION", spec.key.generation);
  set("IMGD_CHECKPOINT_DIR", spec.checkpoint_dir);
  set("IMGD_RESUME", RunDir{start.run_dir}.Resume().native());
  if (!spec.host_address.empty()) set("IMGD_HOST_ADDRESS", spec.host_address);
  // "=" asks NCCL for exactly this interface, not for all that begin so.
  if (!spec.interface.empty()) set("NCCL_SOCKET_IFNAME", "=" + spec.interface);
  if (start.master_fd >= 0) set("IMGD_MASTER_FD", kRankMasterFd);
  if (spec.user.given()) {
    SetVariable(environment, "HOME", spec.user.home);
    SetVariable(environment, "USER", spec.user.name);
    SetVariable(environment, "LOGNAME", spec.user.name);
  }
  // Everybody's folder is nobody's: the run's own goes with it.
  if (spec.paths.limited) SetVariable(environment, "TMPDIR", RunDir{start.run_dir}.Ranks().native());
  for (const auto& [name, value] : start.secrets) SetVariable(environment, name, value);
  if (!spec.Trains()) AddProgramVariables(spec, environment);
  return environment;
}

VisiblePaths PathsOfRanks(const RunSpec& spec, const RunDir& dir) {
  VisiblePaths paths = spec.paths;
  for (const char* path :
       {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys", "/run/systemd/resolve"})
    paths.read.emplace_back(path);
  std::error_code error;
  const auto programs = std::filesystem::canonical(spec.trainer, error).parent_path();
  if (!error)
    paths.read.push_back((programs.filename() == "bin" ? programs.parent_path() : programs).native());
  paths.read.push_back(dir.JobYaml().native());
  paths.read.push_back(dir.Resume().native());
  paths.write.push_back(dir.Ranks().native());
  paths.write.emplace_back("/dev/shm");
  return paths;
}

Result<RankProcess> StartRank(const RunSpec& spec, const RankStart& start) {
  IMGD_ASSIGN(Pipe out, MakePipe());
  IMGD_ASSIGN(Pipe err, MakePipe());
  IMGD_ASSIGN(Pipe report, MakePipe());
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  auto environment = RankEnvironment(spec, start, inherited);
  IMGD_ASSIGN(auto command, CommandOf(spec, start, environment));
  auto& [program, arguments] = command;
  // Above the numbers that the child gives to what it keeps.
  UniqueFd report_fd(::fcntl(report.write.get(), F_DUPFD_CLOEXEC, 10));
  report.write.reset();
  const std::string dir = FolderToRunIn(spec, start);
  const Child child{::getpid(), out.write.get(), err.write.get(),     report_fd.get(),      dir,
                    &spec.user, program,         Pointers(arguments), Pointers(environment)};

  const pid_t pid = ForkInto(start.cgroup_fd);
  if (pid < 0) return FailErrno(errno, "cannot start a process");
  if (pid == 0) Exec(child, start);
  ::setpgid(pid, pid);  // the child does so too; whoever is first
  out.write.reset();
  err.write.reset();
  report_fd.reset();
  if (const int error = ReadReport(report.read.get()); error != 0) {
    ::waitpid(pid, nullptr, 0);
    return FailErrno(error, fmt::format("cannot run {}{}{}", spec.Trains() ? "the trainer " : "", program,
                                        spec.user.given() ? " as user " + spec.user.name : ""));
  }
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  const auto stat = ReadProcessStat(pid);
  return RankProcess{pid, stat ? stat->start_time : 0, std::move(out.read), std::move(err.read)};
}

}  // namespace imgd
