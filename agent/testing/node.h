#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/process.h"
#include "agent/supervisor.h"
#include "agent/testing/temp_dir.h"

namespace imgd {

/// What a daemon stores of one rank, and what it found wrong with how it came.
struct StoredRank {
  uint64_t last_event = 0;
  std::vector<v1::LogLine> lines;
  std::vector<std::string> faults;  ///< events or lines that came twice, or not in order

  uint64_t last_line() const { return lines.empty() ? 0 : lines.back().line_number(); }
  std::vector<std::string> Text() const {
    std::vector<std::string> text;
    for (const auto& line : lines) text.push_back(line.text());
    return text;
  }
};

/// Runs the loop until `done`; false if that takes longer than any test should.
inline bool RunUntil(EventLoop& loop, const std::function<bool()>& done) {
  const Instant give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    loop.RunOnce(std::chrono::milliseconds(20));
  }
  return true;
}

/// Keeps what agents relay, as a daemon does: by run and rank.
class Store {
 public:
  /// Takes a message in and returns the acknowledgement that is due, if one is.
  std::optional<v1::ConnectResponse> Take(const v1::ConnectRequest& request) {
    v1::ConnectResponse ack;
    if (request.has_trainer_events()) {
      const auto& batch = request.trainer_events();
      StoredRank& rank = Of(batch.run(), batch.rank());
      for (const auto& event : batch.events()) {
        if (event.sequence() != rank.last_event + std::max<uint64_t>(event.lost().count(), 1))
          rank.faults.push_back("event " + event.ShortDebugString());
        rank.last_event = event.sequence();
      }
      *ack.mutable_events_ack()->mutable_run() = batch.run();
      ack.mutable_events_ack()->set_rank(batch.rank());
      ack.mutable_events_ack()->set_sequence(rank.last_event);
      return ack;
    }
    if (!request.has_log_lines()) return std::nullopt;
    const auto& batch = request.log_lines();
    StoredRank& rank = Of(batch.run(), batch.rank());
    for (const auto& line : batch.lines()) {
      if (line.line_number() <= rank.last_line()) rank.faults.push_back("line " + line.ShortDebugString());
      rank.lines.push_back(line);
    }
    *ack.mutable_logs_ack()->mutable_run() = batch.run();
    ack.mutable_logs_ack()->set_rank(batch.rank());
    ack.mutable_logs_ack()->set_line_number(rank.last_line());
    return ack;
  }

  void AddPositions(v1::Welcome* welcome) const {
    for (const auto& [key, rank] : ranks_) {
      auto* position = welcome->add_positions();
      position->mutable_run()->set_job_id(key.first.first);
      position->mutable_run()->set_generation(key.first.second);
      position->set_rank(key.second);
      position->set_event_sequence(rank.last_event);
      position->set_line_number(rank.last_line());
    }
  }

  StoredRank& Rank(uint64_t job, uint64_t generation, uint32_t rank) {
    return ranks_[{{job, generation}, rank}];
  }

 private:
  StoredRank& Of(const v1::RunId& run, uint32_t rank) { return Rank(run.job_id(), run.generation(), rank); }
  std::map<std::pair<std::pair<uint64_t, uint64_t>, uint32_t>, StoredRank> ranks_;
};

/// A node under test without a network: a supervisor with real shims and ranks, and a daemon's side that
/// stores what comes and acknowledges it while `acknowledge` is true.
class TestNode {
 public:
  explicit TestNode(uint32_t cpu_slots = 2) {
    options_.state_dir = dir_ / "state";
    options_.shim_program = IMGD_SHIM_PROGRAM;
    for (uint32_t i = 0; i < cpu_slots; ++i) options_.devices.emplace_back().set_index(i);
    options_.use_cgroup = false;
    loop_ = std::move(*EventLoop::Create());
  }
  ~TestNode() {
    if (supervisor_ != nullptr) {
      for (const auto& of : supervisor_->LiveClusters()) supervisor_->StopAll(of);
      EXPECT_TRUE(Until([this] { return supervisor_->LiveClusters().empty(); }));
    }
  }

  SupervisorOptions& options() { return options_; }
  const TempDir& dir() const { return dir_; }
  EventLoop& loop() { return *loop_; }
  Store& store() { return store_; }
  Supervisor& supervisor() { return *supervisor_; }
  bool acknowledge = true;
  /// Of the daemon that welcomes from now on.
  std::string cluster = {};

  /// Makes `body` the trainer of later starts.
  void Trainer(std::string_view body) { options_.trainer = dir_.Script("trainer", body); }

  /// Begins, or begins again as a new agent process would: nothing but the state folder is kept.
  void Begin(bool connect = true) {
    supervisor_.reset();
    supervisor_ = std::move(*Supervisor::Create(
        loop_.get(), options_, [this](const v1::ConnectRequest& request) { Take(request); }));
    supervisor_->SetAddress("127.0.0.1");
    if (connect) Connect();
  }
  void Connect() {
    for (auto& status : supervisor_->Statuses()) Remember(status);
    supervisor_->OnConnected();
    v1::Welcome welcome;
    welcome.set_cluster_id(cluster);
    store_.AddPositions(&welcome);
    supervisor_->OnWelcome(welcome);
  }
  void Disconnect() { supervisor_->OnDisconnected(); }

  static v1::StartRun StartCommand(uint64_t job, uint64_t generation, uint32_t ranks) {
    v1::StartRun start;
    start.mutable_run()->set_job_id(job);
    start.mutable_run()->set_generation(generation);
    start.set_job_yaml("name: test\n");
    start.set_job_name("test");
    for (uint32_t i = 0; i < ranks; ++i) start.add_devices(i);
    // Ranks from 1 on: rank 0 needs a port that was prepared.
    start.set_first_rank(1);
    start.set_world_size(ranks + 1);
    start.set_master_address("127.0.0.1");
    start.set_master_port(29500);
    start.set_checkpoint_dir("/nowhere/checkpoints");
    start.set_grace_ms(200);
    return start;
  }
  void Start(const v1::StartRun& start) {
    v1::ConnectResponse command;
    *command.mutable_start_run() = start;
    supervisor_->Handle(command);
  }
  void Start(uint64_t job, uint64_t generation, uint32_t ranks) {
    Start(StartCommand(job, generation, ranks));
  }
  void Prepare(uint64_t job, uint64_t generation) {
    v1::ConnectResponse command;
    command.mutable_prepare_run()->mutable_run()->set_job_id(job);
    command.mutable_prepare_run()->mutable_run()->set_generation(generation);
    supervisor_->Handle(command);
  }
  void Stop(uint64_t job, uint64_t generation, uint32_t grace_ms, bool checkpoint = false) {
    v1::ConnectResponse command;
    command.mutable_stop_run()->mutable_run()->set_job_id(job);
    command.mutable_stop_run()->mutable_run()->set_generation(generation);
    command.mutable_stop_run()->set_grace_ms(grace_ms);
    command.mutable_stop_run()->set_checkpoint_first(checkpoint);
    supervisor_->Handle(command);
  }
  void Forget(uint64_t job, uint64_t generation) {
    v1::ConnectResponse command;
    command.mutable_forget_run()->mutable_run()->set_job_id(job);
    command.mutable_forget_run()->mutable_run()->set_generation(generation);
    supervisor_->Handle(command);
  }

  /// Runs the node until `done`; false if that takes longer than any test should.
  bool Until(const std::function<bool()>& done) { return RunUntil(*loop_, done); }
  bool UntilPhase(uint64_t job, uint64_t generation, v1::RunPhase phase) {
    return Until([&] { return Status(job, generation).phase() == phase; });
  }
  bool UntilGone(uint64_t job, uint64_t generation) {
    return UntilPhase(job, generation, v1::RUN_PHASE_GONE);
  }
  /// Waits until the rank's log, as the daemon has it, holds that line.
  bool UntilLine(uint64_t job, uint64_t generation, uint32_t rank, const std::string& text) {
    return Until([&] {
      const auto lines = store_.Rank(job, generation, rank).Text();
      return std::find(lines.begin(), lines.end(), text) != lines.end();
    });
  }

  /// The latest status that the node sent of the run.
  v1::RunStatus Status(uint64_t job, uint64_t generation) { return statuses_[{job, generation}]; }
  void ForgetStatuses() { statuses_.clear(); }
  const std::vector<v1::RunPrepared>& prepared() const { return prepared_; }
  std::filesystem::path RunPath(uint64_t job, uint64_t generation) const {
    return options_.state_dir / "runs" / RunKey{JobId(job), Generation(generation), cluster}.FolderName();
  }
  /// Processes whose environment names this node's state folder: all its ranks and what they started.
  std::vector<pid_t> Processes(uint64_t job, uint64_t generation) const {
    return LeftoverProcesses(RunDir{RunPath(job, generation)}, std::nullopt);
  }
  RunRecord Record(uint64_t job, uint64_t generation) const {
    return LoadRunRecord(RunDir{RunPath(job, generation)})->value();
  }

 private:
  void Remember(const v1::RunStatus& status) {
    if (status.cluster_id() != cluster) return;  // as a daemon does
    statuses_[{status.run().job_id(), status.run().generation()}] = status;
  }
  void Take(const v1::ConnectRequest& request) {
    if (request.has_run_status()) Remember(request.run_status());
    if (request.has_run_prepared()) prepared_.push_back(request.run_prepared());
    const auto ack = store_.Take(request);
    // Later, as it would come over a network.
    if (ack && acknowledge) loop_->After(Duration::zero(), [this, ack] { supervisor_->Handle(*ack); });
  }

  TempDir dir_;
  SupervisorOptions options_;
  Store store_;
  std::unique_ptr<EventLoop> loop_;
  std::map<std::pair<uint64_t, uint64_t>, v1::RunStatus> statuses_;
  std::vector<v1::RunPrepared> prepared_;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace imgd
