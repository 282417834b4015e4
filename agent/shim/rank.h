#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/run_dir.h"
#include "agent/secrets.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// What a rank is started with, besides its specification.
struct RankStart {
  uint32_t local_rank = 0;
  std::filesystem::path run_dir;
  int master_fd = -1;  ///< the run's listening socket; only rank 0 of the gang is given it
  int cgroup_fd = -1;  ///< the run's group (Cgroup::Open); -1 without one
  SecretVariables secrets = {};
  int ruleset_fd = -1;  ///< of Landlock; -1 where all paths are visible
};

/// A rank that runs. The shim owns the reading ends of its pipes, which do not block.
struct RankProcess {
  pid_t pid = 0;
  uint64_t start_time = 0;
  UniqueFd out;
  UniqueFd err;
};

/// The number that the inherited rendezvous socket has in rank 0.
inline constexpr int kRankMasterFd = 3;

/// The rank's environment: `inherited` ("NAME=value") without what was meant for the agent, with torchrun's
/// variables, ours, those of its secrets and, last, those that the job says itself.
std::vector<std::string> RankEnvironment(const RunSpec& spec, const RankStart& start,
                                         const std::vector<std::string>& inherited);

/// What the ranks see: their project's paths, and what every rank needs: its folder, programs and libraries
/// of the system and the trainer, devices, shared memory, /proc and /sys. Not for runs whose paths are not
/// limited.
VisiblePaths PathsOfRanks(const RunSpec& spec, const RunDir& dir);

/// Starts one rank as a child of this process, in a process group of its own; it dies with this process.
/// Call from a single-threaded process whose working directory is the run's folder.
/// Errors: when the program can't be executed, naming it.
Result<RankProcess> StartRank(const RunSpec& spec, const RankStart& start);

}  // namespace imgd
