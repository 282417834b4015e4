#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/cgroup.h"
#include "agent/event_loop.h"
#include "agent/run_dir.h"
#include "agent/secrets.h"
#include "agent/shim/last_lines.h"
#include "agent/shim/log_writer.h"
#include "agent/shim/rank.h"
#include "agent/shim/status_server.h"

namespace imgd {

/// The shim's work: parent of the ranks, owner of their output, record of how they end, and the one that
/// leaves nothing behind. Single-threaded; the process must be a subreaper and nothing else's.
class Keeper {
 public:
  Keeper(EventLoop* loop, RunDir dir, RunSpec spec);

  /// Writes the first status.json and listens for agents.
  Status Listen();
  /// Starts all ranks. If one can't be started, ends the others and says why in the status.
  void StartRanks(int master_fd);
  /// SIGCHLD and SIGTERM, from the shim's signal descriptor.
  void OnSignal(int signal);

 private:
  enum class Stop { kNo, kCheckpoint, kTerm, kKill };
  struct Stream {
    UniqueFd fd;
    LineSplitter lines;
  };
  struct Rank {
    Stream out;
    Stream err;
    LastLines last_lines;
    UniqueFd control;  ///< connection to the trainer, while it takes a stop command
  };

  /// What is needed before the first rank, besides folders.
  Status Prepare();
  Status PrepareProgram();
  void OnCommand(const std::string& command);
  void StopRanks(Duration grace, bool checkpoint);
  bool AskForCheckpoint(uint32_t local_rank);
  void OnControl(uint32_t local_rank);
  void Terminate(Duration grace);
  void KillAll();

  void Watch(uint32_t local_rank, bool is_stderr);
  /// Reads once; false when there is nothing now or never again.
  bool ReadOutput(uint32_t local_rank, bool is_stderr);
  void TakeLine(uint32_t local_rank, bool is_stderr, std::string_view line);
  void DrainOutput(uint32_t local_rank, size_t max_reads);
  void FinishOutput();

  /// Returns false when no child is left.
  bool ReapChildren();
  void RecordExit(int64_t pid, int status_code, int status);
  bool AllEnded() const;
  void EndWhenEmpty();
  void Leave();
  void Publish();
  void LookForFolder();

  EventLoop* loop_;
  RunDir dir_;
  RunSpec spec_;
  SecretVariables secrets_;  ///< that the ranks have
  UniqueFd ruleset_;         ///< of the paths that they see; none where all are
  RunRecord record_;
  LogWriter log_;
  Cgroup cgroup_;
  std::vector<Rank> ranks_;
  std::unique_ptr<StatusServer> server_;
  Stop stop_ = Stop::kNo;
  Instant stop_deadline_{};
  EventLoop::TimerId stop_timer_ = 0;
  EventLoop::TimerId end_timer_ = 0;
  bool output_finished_ = false;
};

}  // namespace imgd
