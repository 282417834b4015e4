#include "tests/bench/busy_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace imgd {
namespace {

using std::chrono::minutes;

constexpr uint32_t kDevices = 8;
constexpr uint32_t kUsers = 50;
constexpr uint32_t kProjects = 10;
constexpr std::array<const char*, 3> kModels = {"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla T4"};
constexpr const char* kFolder = "/shared/runs";

/// Nodes and ranks of jobs that run: 14.7 devices on average, so that half as many jobs as nodes fill 92 %.
struct Gang {
  uint32_t of_100;
  uint32_t nodes;
  uint32_t ranks;
};
constexpr std::array<Gang, 5> kRunning = {{{10, 1, 1}, {15, 1, 4}, {25, 1, 8}, {25, 2, 8}, {25, 4, 8}}};

std::string UserName(uint32_t number) { return fmt::format("user-{:02}", number); }
std::string ProjectName(uint32_t number) { return fmt::format("project-{}", number); }

/// Every fifth user and project may have little.
CoreSettings SettingsFor(const BusySize& size) {
  CoreSettings settings;
  settings.quotas.user.device_hours = {.most = 1e9};
  for (uint32_t i = 0; i < kUsers; i += 5)
    settings.quotas.users[UserName(i)] = {.devices = std::max(size.nodes / 20, 8U)};
  for (uint32_t i = 0; i < kProjects; i += 5)
    settings.quotas.projects[ProjectName(i)] = {.devices = std::max(size.nodes / 4, 8U)};
  return settings;
}

NodeHello HelloOf(uint32_t number, uint32_t nodes) {
  const std::string name = fmt::format("gpu-{:06}", number);
  NodeHello hello{.node = NodeId(name), .agent_id = name, .address = name, .filesystem_id = name};
  for (uint32_t device = 0; device < kDevices; ++device)
    hello.devices.push_back({.index = device, .model = kModels[number / 8 % kModels.size()]});
  const bool apart = number < nodes / 4;
  hello.shared_folders = {{.path = "/shared", .id = apart ? "nfs-2" : "nfs-1"}};
  hello.labels = {{"zone", fmt::format("zone-{}", number % 8)},
                  {"placement_group", fmt::format("group-{}", number / 128 * 8 + number % 8)}};
  if (number % 3 == 0) hello.labels["capacity"] = "spot";
  return hello;
}

}  // namespace

BusyCluster::BusyCluster(BusySize size)
    : reactor_(SettingsFor(size), "cafe0123"),
      now_{Instant(std::chrono::hours(1000)), WallTime{1'700'000'000'000'000}} {
  reactor_.Restore({}, {}, JobId(1), now_);
  JoinAll(size.nodes);
  FillUp(size.running);
  FailSome(std::max(size.queued / 100, 1U));
  SubmitFirst(size.nodes);
  // Some find a place at once.
  for (int round = 0; round < 20 && reactor_.state().queue().size() < size.queued; ++round) {
    SubmitWaiting(size.queued - static_cast<uint32_t>(reactor_.state().queue().size()));
    Settle();
  }
  // Elastic jobs may grow from now on.
  now_.steady += minutes(20);
  now_.wall.micros += std::chrono::microseconds(minutes(20)).count();
}

void BusyCluster::JoinAll(uint32_t nodes) {
  for (uint32_t i = 0; i < nodes; ++i) (void)reactor_.OnAgentHello(HelloOf(i, nodes), i + 1, now_, actions_);
  Settle();
}

Submission BusyCluster::OfSomebody() {
  Submission job;
  job.name = "rn50";
  job.owner = UserName(Draw(kUsers));
  job.project = ProjectName(Draw(kProjects));
  job.checkpoint_parent = Draw(4) == 0 ? kFolder : "s3://bucket/runs";
  if (Draw(2) == 0) job.time_limit_ms = std::chrono::milliseconds(minutes(60 + Draw(3000))).count();
  return job;
}

/// Those that find no place, or are over their quota, leave.
void BusyCluster::FillUp(uint32_t running) {
  const auto& state = reactor_.state();
  for (int round = 0; round < 20 && state.active().size() < running; ++round) {
    for (size_t i = state.active().size(); i < running; ++i) SubmitRunning();
    Settle();
    const auto left = state.queue();
    for (const auto& job : left) (void)reactor_.OnCancel(job.id, false, "bench", now_, actions_);
    Settle();
  }
}

void BusyCluster::SubmitRunning() {
  Submission job = OfSomebody();
  const Gang* gang = kRunning.begin();
  for (uint32_t drawn = Draw(100); drawn >= gang->of_100; ++gang) drawn -= gang->of_100;
  job.nodes = gang->nodes;
  job.ranks_per_node = gang->ranks;
  job.priority = static_cast<int>(Draw(2));
  job.preemptible = Draw(2) == 0;
  if (Draw(10) == 0) job.max_nodes = 2 * job.nodes;
  reactor_.OnSubmit(job, now_, actions_);
}

/// Larger than the holes that are left, mostly.
void BusyCluster::SubmitWaiting(uint32_t jobs) {
  for (uint32_t i = 0; i < jobs; ++i) {
    Submission job = OfSomebody();
    job.nodes = 1U << Draw(6);
    job.ranks_per_node = 1U << Draw(4);
    job.priority = -static_cast<int>(Draw(3));
    job.needs.whole_nodes = Draw(8) == 0;
    if (Draw(2) == 0) job.needs.gpu = true;
    if (job.needs.gpu && Draw(2) == 0) job.needs.models = {Draw(2) == 0 ? "H100" : "A100"};
    if (job.needs.gpu && Draw(4) == 0) job.needs.not_labels["capacity"] = {"spot"};
    reactor_.OnSubmit(job, now_, actions_);
  }
}

/// Seven eighths of all nodes; half of what runs may not be preempted.
void BusyCluster::SubmitFirst(uint32_t nodes) {
  Submission job = OfSomebody();
  job.owner = "admin";
  job.project.clear();
  job.checkpoint_parent = "s3://bucket/runs";
  job.priority = 5;
  job.nodes = std::max(nodes / 8 * 7, 1U);
  job.ranks_per_node = kDevices;
  reactor_.OnSubmit(job, now_, actions_);
}

/// They wait for their retry.
void BusyCluster::FailSome(uint32_t jobs) {
  const size_t last = std::min<size_t>(running_.size(), next_end_ + jobs);
  while (next_end_ < last) End(running_[next_end_++], false);
  Settle();
}

void BusyCluster::End(JobId id, bool well) {
  const JobRecord* job = reactor_.state().FindJob(id);
  if (job == nullptr || job->state != JobState::kRunning) return;
  const RunKey run{id, job->generation};
  const auto parts = job->run.parts;
  if (well) reactor_.OnTrainerFinished(run, 0, now_, actions_);
  for (const auto& part : parts) {
    RunReport gone{.run = run, .phase = RunPhase::kGone};
    for (uint32_t i = 0; i < part.devices.size(); ++i)
      gone.exits.push_back({.rank = part.first_rank + i, .exit_code = well ? 0 : 1});
    reactor_.OnRunStatus(part.node, gone, now_, actions_);
  }
}

std::chrono::duration<double, std::milli> BusyCluster::Pass() {
  now_.steady += std::chrono::seconds(1);
  now_.wall.micros += 1'000'000;
  if (next_end_ < running_.size()) End(running_[next_end_++], true);
  SubmitWaiting(1);
  return Settle();
}

std::chrono::duration<double, std::milli> BusyCluster::Settle() {
  std::chrono::duration<double, std::milli> first{};
  for (bool again = true, is_first = true; again; is_first = false) {
    const auto begun = std::chrono::steady_clock::now();
    reactor_.Schedule(now_, actions_);
    if (is_first) first = std::chrono::steady_clock::now() - begun;
    reactor_.Commit();
    Actions done = std::exchange(actions_, {});
    for (const auto& action : done) {
      std::visit([&](const auto& known) { Obey(known, actions_); }, action);
    }
    again = !actions_.empty();
  }
  return first;
}

void BusyCluster::Obey(const SendPrepare& prepare, Actions& out) {
  ++starts_;
  running_.push_back(prepare.run.job);
  reactor_.OnRunPrepared(prepare.node, prepare.run, prepare.node.name(), 29500, "", now_, out);
}

void BusyCluster::Obey(const SendStart& start, Actions& out) {
  reactor_.OnRunStatus(start.node, {.run = start.run, .phase = RunPhase::kRunning}, now_, out);
  for (uint32_t i = 0; i < start.ranks; ++i)
    reactor_.OnTrainerStarted(start.run, start.first_rank + i, now_, out);
}

}  // namespace imgd
