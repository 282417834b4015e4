#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/run_dir.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// What /proc/PID/stat says; proc(5).
struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  uint64_t start_time = 0;  ///< clock ticks since boot: with the pid, tells processes apart
  bool IsDead() const { return state == 'Z' || state == 'X'; }
};

/// Nothing when there is no such process.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

/// Whether the text of /proc/PID/status is of a process that is writing a core dump; proc(5).
bool SaysCoreDumping(std::string_view status);
/// The same of a process that may be gone.
bool IsDumpingCore(pid_t pid);

/// Every process, dead ones that nobody waited for included, by pid.
std::vector<ProcessStat> AllProcesses();

/// Children of `root`, their children and so on, without dead ones.
std::vector<pid_t> DescendantsOf(pid_t root);

/// True while the process with that pid and start time runs.
bool IsAlive(pid_t pid, uint64_t start_time);

/// Identifies the machine's current boot; empty where the kernel does not say.
std::string BootId();

/// Processes of a run that are still there: those recorded, those in its cgroup, and those whose environment
/// names the run's folder. For use when the shim is gone and can't say.
std::vector<pid_t> LeftoverProcesses(const RunDir& dir, const std::optional<RunRecord>& record);

/// A descriptor that becomes readable when the process ends; invalid when there is no such process.
UniqueFd PidfdOpen(pid_t pid);
/// Sends a signal to exactly that process.
void PidfdSignal(int pidfd, int signal);

/// How to start a shim. `master_fd` is -1 where the run holds no port here.
struct ShimStart {
  std::filesystem::path program;  ///< imgagent
  RunDir dir;
  int master_fd = -1;
  int lock_fd = -1;  ///< holds the lock on shim.lock; the shim keeps it for as long as it lives
};

/// Starts the shim and waits until it listens on its socket. It is then nobody's child here.
/// Errors: what the shim wrote to shim.log, if it could not begin.
Status StartShim(const ShimStart& start);

/// Takes the lock of shim.lock. Errors: kAlreadyExists while a shim holds it, that is, lives.
Result<UniqueFd> LockShim(const RunDir& dir);

}  // namespace imgd
