#include "server/core/testing/test_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/job.h"

namespace imgd {
namespace {

std::string Text(RunKey run) { return fmt::format("{}/{}", run.job, run.generation); }

}  // namespace

TestCluster::TestCluster(CoreSettings settings) : settings_(settings), reactor_(settings, "cafe0123") {
  reactor_.Restore({}, {}, JobId(1), now_);
}

void TestCluster::Take(Actions actions) {
  for (auto& action : actions) {
    if (auto* event = std::get_if<AppendEvent>(&action)) history_.push_back(*event);
    if (auto* decision = std::get_if<AppendDecision>(&action)) decisions_.push_back(decision->reason.text);
    if (auto* prepare = std::get_if<SendPrepare>(&action)) {
      sent_[prepare->node.name()].push_back("prepare " + Text(prepare->run));
    } else if (auto* start = std::get_if<SendStart>(&action)) {
      sent_[start->node.name()].push_back("start " + Text(start->run));
      starts_[start->node.name()] = *start;
    } else if (auto* stop = std::get_if<SendStop>(&action)) {
      sent_[stop->node.name()].push_back((stop->checkpoint_first ? "checkpoint-stop " : "stop ") +
                                         Text(stop->run));
      stops_[stop->node.name()] = *stop;
    } else if (auto* forget = std::get_if<SendForget>(&action)) {
      sent_[forget->node.name()].push_back("forget " + Text(forget->run));
    } else if (auto* disconnect = std::get_if<Disconnect>(&action)) {
      sent_[disconnect->node.name()].push_back("disconnect");
      sessions_.erase(disconnect->node.name());
    }
  }
}

void TestCluster::Settle(Actions actions) {
  reactor_.Schedule(now_, actions);
  reactor_.Commit();
  Take(std::move(actions));
}

Status TestCluster::TryJoin(const std::string& node, uint32_t devices, const std::string& agent_id,
                            std::vector<RunReport> runs) {
  NodeHello hello{.node = NodeId(node),
                  .agent_id = agent_id,
                  .incarnation = incarnation,
                  .address = node,
                  .filesystem_id = filesystem,
                  .labels = labels,
                  .runs = std::move(runs),
                  .price_per_hour = price_per_hour};
  for (uint32_t i = 0; i < devices; ++i) hello.devices.push_back({.index = i, .model = "cpu"});
  Actions actions;
  const uint64_t session = next_session_++;
  auto status = reactor_.OnAgentHello(hello, session, now_, actions);
  if (status) sessions_[node] = session;
  Settle(std::move(actions));
  return status;
}

TestCluster& TestCluster::Join(const std::string& node, uint32_t devices, std::vector<RunReport> runs) {
  silent_.erase(node);
  const auto status = TryJoin(node, devices, "agent-of-" + node, std::move(runs));
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return *this;
}

void TestCluster::Leave(const std::string& node) {
  reactor_.OnAgentGone(NodeId(node), sessions_.at(node));
  sessions_.erase(node);
  Settle({});
}

Submission TestCluster::SubmissionOf(const std::string& name, const Want& want) {
  return {.kind = want.kind,
          .per_node = want.per_node,
          .name = name,
          .owner = want.owner,
          .project = want.project,
          .priority = want.priority,
          .nodes = want.nodes,
          .max_nodes = want.max_nodes,
          .ranks_per_node = want.ranks,
          .max_restarts = want.max_restarts,
          .time_limit_ms = want.time_limit_ms,
          .preemptible = want.preemptible,
          .after = want.after,
          .not_before = want.not_before,
          .checkpoint_parent = "/ckpt"};
}

JobId TestCluster::Submit(const std::string& name, Want want) {
  Actions actions;
  const JobId job = reactor_.OnSubmit(SubmissionOf(name, want), now_, actions);
  Settle(std::move(actions));
  return job;
}

JobId TestCluster::SubmitSweep(const std::string& name, uint32_t members, uint32_t max_running,
                               std::optional<Halving> halving) {
  const Want want;
  SweepSubmission sweep{
      .name = name, .owner = want.owner, .max_running = max_running, .halving = std::move(halving)};
  for (uint32_t i = 1; i <= members; ++i)
    sweep.members.push_back(SubmissionOf(fmt::format("{}[{}]", name, i), want));
  Actions actions;
  const JobId first = reactor_.OnSubmitSweep(sweep, now_, actions);
  Settle(std::move(actions));
  return first;
}

Dependency TestCluster::After(JobId job, AfterEnd when) const {
  return {.job = job, .name = Job(job).name, .when = when};
}

void TestCluster::FailCommit(const std::function<void(Actions&)>& batch) {
  Actions actions;
  batch(actions);
  reactor_.Schedule(now_, actions);
  reactor_.Rollback();
  sessions_.clear();
}

Status TestCluster::Cancel(JobId job, bool checkpoint_first) {
  Actions actions;
  auto status = reactor_.OnCancel(job, checkpoint_first, "ada", now_, actions);
  Settle(std::move(actions));
  return status;
}

Status TestCluster::Ask(const std::function<Status(Actions&)>& order) {
  Actions actions;
  auto status = order(actions);
  Settle(std::move(actions));
  return status;
}

Status TestCluster::Pause(JobId job) {
  return Ask([&](Actions& out) { return reactor_.OnPause(job, "ada", now_, out); });
}

Status TestCluster::Resume(JobId job) {
  return Ask([&](Actions& out) { return reactor_.OnResume(job, "ada", now_, out); });
}

Status TestCluster::Move(JobId job) {
  return Ask([&](Actions& out) { return reactor_.OnMove(job, "ada", now_, out); });
}

Status TestCluster::SetPriority(JobId job, int priority) {
  return Ask([&](Actions& out) { return reactor_.OnSetPriority(job, priority, "ada", now_, out); });
}

Status TestCluster::SetTimeLimit(JobId job, TimeLimitChange change) {
  return Ask([&](Actions& out) { return reactor_.OnSetTimeLimit(job, change, "ada", now_, out); });
}

Status TestCluster::SetAside(const std::string& node, bool drain, const std::string& reason) {
  return Ask(
      [&](Actions& out) { return reactor_.OnSetAside(NodeId(node), drain, reason, "ada", now_, out); });
}

Status TestCluster::Forget(const std::string& node) {
  return Ask([&](Actions& out) { return reactor_.OnForget(NodeId(node), "ada", now_, out); });
}

Status TestCluster::Return(const std::string& node, bool drained) {
  return Ask([&](Actions& out) { return reactor_.OnReturn(NodeId(node), drained, "ada", now_, out); });
}

JobId TestCluster::StartedByHand(const std::string& name, std::vector<std::string> hosts) {
  Actions actions;
  const JobId job = reactor_.OnStartedByHand({.name = name,
                                              .owner = "ada",
                                              .nodes = static_cast<uint32_t>(hosts.size()),
                                              .hosts = std::move(hosts),
                                              .token = "t"},
                                             now_, actions);
  Settle(std::move(actions));
  return job;
}

void TestCluster::HeardByHand(JobId job) {
  Actions actions;
  reactor_.OnHeardByHand(job, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Prepared(const std::string& node, JobId job, const std::string& error) {
  Actions actions;
  reactor_.OnRunPrepared(NodeId(node), RunOf(job), node, error.empty() ? 29500 : 0, error, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Says(const std::string& node, const RunReport& report) {
  Actions actions;
  reactor_.OnRunStatus(NodeId(node), report, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Runs(const std::string& node, JobId job) {
  Says(node, {.run = RunOf(job), .phase = RunPhase::kRunning});
}

void TestCluster::Ends(const std::string& node, JobId job, std::vector<RankExit> exits) {
  Says(node, {.run = RunOf(job), .phase = RunPhase::kGone, .exits = std::move(exits)});
}

void TestCluster::Exits(const std::string& node, JobId job, std::vector<RankExit> exits) {
  Says(node, {.run = RunOf(job), .phase = RunPhase::kRunning, .exits = std::move(exits)});
}

void TestCluster::Pulses(const std::string& node, JobId job, std::vector<RankPulse> ranks) {
  reactor_.OnRunPulse(NodeId(node), RunOf(job), std::move(ranks), now_);
  Settle({});
}

void TestCluster::Started(JobId job, uint32_t rank) {
  Actions actions;
  reactor_.OnTrainerStarted(RunOf(job), rank, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Epoch(JobId job, uint32_t epoch, double top1) {
  Actions actions;
  reactor_.OnTrainerEpoch(RunOf(job), {.epoch = epoch, .top1 = top1}, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Finished(JobId job, uint32_t rank) {
  Actions actions;
  reactor_.OnTrainerFinished(RunOf(job), rank, now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Failed(JobId job, RankFailure failure) {
  Actions actions;
  reactor_.OnTrainerFailed(RunOf(job), std::move(failure), now_, actions);
  Settle(std::move(actions));
}

void TestCluster::Wrote(JobId job, uint64_t step, Generation generation) {
  Actions actions;
  reactor_.OnTrainerCheckpoint(
      {job, generation},
      {.path = fmt::format("/ckpt/g{}/step{}", generation, step), .step = step, .generation = generation},
      now_, actions);
  Settle(std::move(actions));
}

void TestCluster::BringUp(JobId job) {
  const auto parts = Job(job).run.parts;
  ASSERT_FALSE(parts.empty()) << "the job was not placed: " << Job(job).reason.text;
  Prepared(parts.front().node.name(), job);
  for (const auto& part : parts) Runs(part.node.name(), job);
  for (uint32_t rank = 0; rank < Job(job).WorldSize() && Job(job).Trains(); ++rank) Started(job, rank);
  ASSERT_EQ(Job(job).state, JobState::kRunning);
}

void TestCluster::Complete(JobId job) {
  if (Job(job).Trains()) Finished(job);
  const auto parts = Job(job).run.parts;
  for (const auto& part : parts) {
    std::vector<RankExit> exits;
    for (uint32_t i = 0; i < part.Ranks(); ++i) exits.push_back(ExitCode(part.first_rank + i, 0));
    Ends(part.node.name(), job, std::move(exits));
  }
}

void TestCluster::Pass(Duration time) {
  const Instant end = now_.steady + time;
  while (now_.steady < end) {
    const Duration step = std::min<Duration>(std::chrono::seconds(1), end - now_.steady);
    now_.steady += step;
    now_.wall.micros += std::chrono::duration_cast<std::chrono::microseconds>(step).count();
    for (const auto& [node, session] : sessions_) {
      if (!silent_.contains(node)) reactor_.OnHeard(NodeId(node), now_);
    }
    Actions actions;
    reactor_.OnTick(now_, actions);
    Settle(std::move(actions));
  }
}

void TestCluster::Restart() {
  reactor_ = RestartedFrom(reactor_, settings_, now_);
  sessions_.clear();
  Settle({});
}

Reactor RestartedFrom(const Reactor& old, const CoreSettings& settings, Now now) {
  std::vector<JobRecord> jobs;
  for (JobId id(1); id < old.next_job(); id = JobId(id.value() + 1)) {
    const JobRecord* job = old.state().FindJob(id);
    if (job == nullptr) continue;
    jobs.push_back(*job);
    jobs.back().not_before = {};
    jobs.back().run.since = jobs.back().run.stop_since = jobs.back().run.gone_since =
        jobs.back().run.held_since = jobs.back().run.charged_at = {};
    for (auto& part : jobs.back().run.parts) {
      part.sent = Command::kNothing;
      part.stop_by = {};
    }
    if (jobs.back().by_hand) jobs.back().by_hand->silence = {};
  }
  std::vector<NodeRecord> nodes;
  for (const auto& [id, node] : old.state().nodes()) {
    nodes.push_back(node);
    nodes.back().session = 0;
    nodes.back().silence = {};
    nodes.back().stale.clear();
    nodes.back().foreign.clear();
    nodes.back().notice.reset();
    nodes.back().holders.clear();
  }
  std::vector<SweepRecord> sweeps;
  for (const auto& [id, sweep] : old.state().sweeps()) sweeps.push_back(sweep);
  Reactor reactor(settings, "cafe0123");
  reactor.Restore(std::move(jobs), std::move(nodes), old.next_job(), now, old.state().usage(),
                  std::move(sweeps), old.state().accounts());
  return reactor;
}

const JobRecord& TestCluster::Job(JobId job) const { return *reactor_.state().FindJob(job); }

std::vector<std::string> TestCluster::Sent(const std::string& node) { return std::exchange(sent_[node], {}); }

std::vector<std::string> TestCluster::History(JobId job) const {
  std::vector<std::string> out;
  for (const auto& event : history_) {
    if (event.job != job || (!out.empty() && out.back() == NameOf(event.to))) continue;
    out.emplace_back(NameOf(event.to));
  }
  return out;
}

const AppendEvent& TestCluster::LastEvent(JobId job) const {
  const auto last = std::find_if(history_.rbegin(), history_.rend(),
                                 [job](const AppendEvent& event) { return event.job == job; });
  return *last;  // every job has one, of its submission
}

std::string TestCluster::WhyWaits(JobId job) const {
  const auto& queue = reactor_.state().queue();
  for (size_t i = 0; i < queue.size(); ++i) {
    if (queue[i].id != job) continue;
    return ExplainWait(reactor_.MakeSnapshot(now_), WaitingAt(queue, i));
  }
  return "";
}

}  // namespace imgd
