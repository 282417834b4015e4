#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/landlock.h"
#include "agent/unix_user.h"
#include "common/error.h"
#include "common/ids.h"

namespace imgd {

/// One start of one job of one cluster: another daemon's job of the same number is another job.
struct RunKey {
  JobId job;
  Generation generation;
  std::string cluster = {};  ///< id of the daemon that started it
  auto operator<=>(const RunKey&) const = default;
  /// "7-2", for people.
  std::string ToString() const;
  /// "7-2-1f3a5b7c": the name of the run's folder.
  std::string FolderName() const;
};

/// What the ranks run in place of the trainer.
struct RunProgram {
  std::vector<std::string> arguments;              ///< the program first; none: the trainer
  std::map<std::string, std::string> environment;  ///< variables of the job's own
  std::string dir;                                 ///< to run in; empty: the job's own folder, or the run's
  bool per_node = false;                           ///< one process here, which has all devices
  bool own_folder = false;                         ///< it may keep files in the job's own folder
};

/// Everything that the shim needs to start a run's ranks on this node; `run.json`.
struct RunSpec {
  RunKey key;
  std::string job_name;
  std::string trainer;  ///< program of each rank; gets job.yaml as its argument
  RunProgram program;   ///< the same where the job does not train
  uint32_t first_rank = 0;
  uint32_t local_world_size = 1;
  uint32_t world_size = 1;
  uint32_t node_rank = 0;
  uint32_t node_count = 1;
  std::vector<uint32_t> devices;  ///< by index on the node
  std::string visible_devices;    ///< CUDA_VISIBLE_DEVICES; empty on CPU slots
  std::string master_address;
  uint32_t master_port = 0;
  std::string host_address;
  std::string interface;  ///< network interface of host_address; empty when not known
  std::string checkpoint_dir;
  std::vector<std::string> secrets;  ///< names of those that the ranks get; values are never written down
  std::string secrets_dir;           ///< where they are
  UnixUser user;                     ///< whom the ranks run as
  VisiblePaths paths;                ///< that they see, besides what every rank needs
  int64_t grace_ms = 10'000;
  uint64_t log_limit_bytes = 256ULL << 20;  ///< of all ranks' logs on this node together
  bool use_cgroup = true;                   ///< where one can be made

  bool Trains() const { return program.arguments.empty(); }
};

enum class RankState {
  kPending,
  kRunning,
  kExited,
  kLost,  ///< its machine went down: nobody knows how it would have ended
};

/// One rank's process as the shim sees it.
struct RankRecord {
  uint32_t rank = 0;  ///< in the gang
  RankState state = RankState::kPending;
  int64_t pid = 0;
  uint64_t start_time = 0;  ///< /proc/PID/stat, field 22
  int exit_code = 0;
  int signal = 0;                       ///< that ended it; else 0
  bool told = false;                    ///< it had been told to end before
  std::string last_error_line;          ///< last line on standard error, valid UTF-8
  std::vector<std::string> last_lines;  ///< of a rank that failed: the last ones of its log, cut
  uint64_t lines = 0;                   ///< log lines so far, lost ones included
};

enum class ShimPhase { kStarting, kRunning, kStopping, kGone };

/// What the shim has to say about its run; `status.json`, and each line that it sends over `shim.sock`.
struct RunRecord {
  std::string version = {};  ///< of the shim; empty in what older ones wrote
  int64_t shim_pid = 0;
  uint64_t shim_start_time = 0;
  std::string boot_id;  ///< pids and start times are of this boot
  ShimPhase phase = ShimPhase::kStarting;
  std::string start_error;  ///< why a rank could not be started
  std::string cgroup;       ///< path of the ranks' cgroup; empty without one
  std::vector<RankRecord> ranks;
};

/// Names in a run's folder. docs: the layout is the contract between the agent, the shim and imgtrain.
struct RunDir {
  std::filesystem::path path;

  std::filesystem::path JobYaml() const { return path / "job.yaml"; }
  std::filesystem::path Resume() const { return path / "resume.json"; }
  std::filesystem::path Spec() const { return path / "run.json"; }
  std::filesystem::path Record() const { return path / "status.json"; }
  std::filesystem::path Lock() const { return path / "shim.lock"; }
  std::filesystem::path ShimLog() const { return path / "shim.log"; }
  /// What the ranks write in: the folder itself; of another user's ranks `ranks` in it, so that nothing that
  /// the agent and the shim write can be put in another's place.
  std::filesystem::path Ranks() const;
  std::filesystem::path Events(uint32_t local_rank) const;
};

/// Names of the sockets in RunDir::path and RunDir::Ranks(); relative, since a socket's path has at most 107
/// bytes and a folder's may have more.
inline constexpr const char* kShimSocket = "shim.sock";
std::string ControlSocket(uint32_t local_rank);

std::string ToJson(const RunSpec& spec);
Result<RunSpec> ParseRunSpec(std::string_view json);
/// One line, without a newline.
std::string ToJson(const RunRecord& record);
Result<RunRecord> ParseRunRecord(std::string_view json);

Result<RunSpec> LoadRunSpec(const RunDir& dir);
/// Nothing when the shim has not written it yet.
Result<std::optional<RunRecord>> LoadRunRecord(const RunDir& dir);
/// Replaces status.json. It survives the death of any process, not a power cut: no rank outlives that, and
/// a sync could hold up the ranks' output for seconds.
Status SaveRunRecord(const RunDir& dir, const RunRecord& record);

/// Makes `runs/<key>` with job.yaml, resume.json and run.json in it, and what another user needs to run in
/// it: all of it or nothing under that name.
Result<RunDir> CreateRunDir(const std::filesystem::path& runs, const RunSpec& spec, std::string_view job_yaml,
                            const std::vector<std::string>& resume_from, Generation last_generation);

}  // namespace imgd
