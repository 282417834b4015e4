#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "imgd/v1/event.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "imgd/v1/usage.pb.h"

namespace imgd::cli {

/// A daemon in this process that keeps jobs, events and lines in memory, over Stop and Start too. What a test
/// scripts with an `on_` function takes the place of that. Thread-safe, except for setting `on_` functions.
class FakeDaemon {
 public:
  /// Listens on a port of loopback of its own.
  FakeDaemon();
  ~FakeDaemon();

  /// Ends at once, breaking off all calls, as kill -9 does. Start listens on the same port again.
  void Stop();
  void Start();

  std::string address() const;

  /// Adds the job, or replaces the one with its id.
  void PutJob(const v1::Job& job);
  v1::Job GetJob(uint64_t id) const;

  /// Appends the event with the next number, sends it to watchers, and takes it into the job.
  void AddEvent(uint64_t id, v1::JobEvent event);

  /// Appends a line to the log of the job; watchers of the log get it.
  void AddLine(uint64_t id, const v1::LogLine& line);

  void PutSweep(const v1::Sweep& sweep);

  /// Adds the node, or replaces the one of its name.
  void PutNode(const v1::Node& node);
  /// What it answers about accounts.
  void PutUsage(const v1::ListUsageResponse& usage);
  /// Appends the event with the next number.
  void AddDecision(v1::Event event);
  /// As if so many events had come that nobody asks for, and none but newer ones were kept.
  void PassOver(uint64_t events);
  /// Every WatchJob and WatchEvents call ends after so many items, as one that has lasted too long.
  void LimitStreams(size_t items);

  /// What it answers about the checkpoints of every job.
  void PutCheckpoints(const v1::ListCheckpointsResponse& checkpoints);

  /// What its answers say is wrong with the daemon itself.
  void SetWarning(const std::string& warning);

  /// Waits until so many WatchJob and ReadLogs calls have begun since the fake was made.
  void AwaitStreams(int count);

  /// What was asked so far.
  std::vector<v1::SubmitJobRequest> submits() const;
  std::vector<v1::CancelJobRequest> cancels() const;
  std::vector<v1::CancelSweepRequest> sweep_cancels() const;
  std::vector<v1::ListJobsRequest> lists() const;
  std::vector<v1::GetMetricsRequest> metrics() const;
  std::vector<v1::WatchJobRequest> watches() const;
  std::vector<v1::ReadLogsRequest> log_reads() const;
  std::vector<v1::ChangeJobRequest> changes() const;
  std::vector<v1::SetAsideNodeRequest> set_asides() const;
  std::vector<v1::WatchEventsRequest> event_watches() const;

  std::function<Reply<v1::SubmitJobResponse>(const v1::SubmitJobRequest&)> on_submit;
  std::function<Reply<v1::CancelJobResponse>(const v1::CancelJobRequest&)> on_cancel;
  std::function<Reply<v1::ChangeJobResponse>(const v1::ChangeJobRequest&)> on_change;
  std::function<Reply<v1::ProfileJobResponse>(const v1::ProfileJobRequest&)> on_profile;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Listens at a stopped daemon's address and breaks off so many connections, as one that comes up and dies
/// again does. False when they don't come, each within 20 s of the one before.
bool BreakOffConnections(const std::string& address, int count);

/// A job of two nodes with one rank each, submitted a minute ago.
v1::Job MakeJob(uint64_t id, const std::string& name, v1::JobState state);

v1::JobEvent StateEvent(v1::JobState from, v1::JobState to, const std::string& text);
v1::JobEvent StepEvent(uint64_t step, uint64_t total);
v1::LogLine Line(uint32_t rank, uint64_t number, const std::string& text);

}  // namespace imgd::cli
