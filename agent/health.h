#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/gpu.h"
#include "common/clock.h"
#include "common/error.h"
#include "imgd/v1/agent.pb.h"
#include "imgd/v1/node.pb.h"

namespace imgd {

/// When a node is too ill to be given new runs.
struct HealthLimits {
  uint64_t disk_free_bytes = 512ULL << 20;  ///< at least, where the agent's state folder is; 0: not looked at
  uint64_t memory_free_bytes = 256ULL << 20;  ///< at least, of the machine; 0: not looked at
  uint32_t gpu_memory_free_percent = 75;      ///< at least, of a GPU that no run has; 0: not looked at
};

/// What a machine can be asked, so that tests can make it up.
struct Machine {
  std::function<Result<uint64_t>(const std::filesystem::path&)> disk_free;
  std::function<Result<uint64_t>()> memory_free;
  /// Why a shared folder can't be used; empty where it can. May hang.
  std::function<std::string(const v1::SharedFolder&)> why_no_folder;
};
/// The machine that this is.
Machine ThisMachine();

/// Health checks that have to do with the machine; GPUs are GpuMonitor's. What was found ill stays so until
/// it is better by a tenth than its limit, so that it does not come and go.
class HealthChecks {
 public:
  HealthChecks(Machine machine, HealthLimits limits, std::filesystem::path state_dir,
               std::vector<v1::SharedFolder> folders)
      : machine_(std::move(machine)),
        limits_(limits),
        state_dir_(std::move(state_dir)),
        folders_(std::move(folders)) {}

  /// Looks at everything. May take long: a shared folder whose server is away does not answer.
  std::vector<v1::NodeProblem> Look();

 private:
  /// Whether `found` is too little, and was before or is by more than a tenth.
  static bool TooLittle(bool& was, uint64_t found, uint64_t limit);

  Machine machine_;
  HealthLimits limits_;
  std::filesystem::path state_dir_;
  std::vector<v1::SharedFolder> folders_;
  bool disk_full_ = false;
  bool memory_low_ = false;
};

/// Finds GPUs whose memory something else has than a run of imgd's: a gang there would fail for want of it.
class StrayMemory {
 public:
  explicit StrayMemory(uint32_t least_free_percent) : least_free_percent_(least_free_percent) {}

  /// What to say of the GPU of this index, to go after "GPU 3"; empty where all is well, and in the first
  /// half minute after a run of imgd's, whose memory may not all be free yet, as long as it becomes no more.
  std::string Look(const v1::Device& gpu, const GpuReading& reading, bool held, Instant now);

 private:
  uint32_t least_free_percent_;
  struct LastRun {
    Instant held_at;
    uint64_t least_used;             ///< bytes, since
    std::optional<Instant> grew_at;  ///< since when something has more than that
  };
  std::map<uint32_t, LastRun> last_run_;  ///< by GPU
};

/// Looks every `period`, on a thread of its own, for a folder may hang. Thread-safe.
class HealthMonitor {
 public:
  HealthMonitor(HealthChecks checks, Duration period);
  /// One look that hangs is left behind with its thread.
  ~HealthMonitor();

  /// What the latest look found. While one takes much longer than it should: that a folder does not answer,
  /// too.
  std::vector<v1::NodeProblem> Latest() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Whether this clock is as near to the daemon's as that one wants it. Errors: kFailedPrecondition.
Status CheckSkew(const v1::Welcome& welcome, WallTime now);

}  // namespace imgd
