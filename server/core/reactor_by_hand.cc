#include <fmt/format.h>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/reactor.h"
#include "server/core/waits.h"

/// The reactor's part in runs that somebody started by hand. They have no place on a node, so that neither
/// the scheduler nor what nodes say touches them: their rank 0 reports for all, and its silence is counted.
namespace imgd {
namespace {

std::string ActorOf(const JobRecord& job) { return fmt::format("host:{}", job.by_hand->hosts.front()); }

}  // namespace

JobId Reactor::OnStartedByHand(const HandStart& start, Now now, Actions& out) {
  const JobId id = TakeJobId();
  JobRecord job;
  job.id = id;
  job.name = start.name;
  job.owner = start.owner;
  job.project = start.project;
  job.nodes = start.nodes;
  job.ranks_per_node = start.ranks_per_node;
  job.max_restarts = 0;
  job.checkpoint_dir = start.checkpoint_dir;
  job.state = JobState::kRunning;
  job.generation = Generation(1);
  job.submitted = job.started = now.wall;
  job.by_hand = ByHand{.hosts = start.hosts, .token = start.token, .last_heard = now.wall};
  job.reason = {ReasonCode::kStartedByHand, ExplainByHand(*job.by_hand)};
  out.push_back(AppendEvent{.job = id,
                            .generation = job.generation,
                            .from = JobState::kRunning,
                            .to = JobState::kRunning,
                            .first = true,
                            .reason = job.reason,
                            .actor = ActorOf(job),
                            .time = now.wall});
  state_.AddJob(std::move(job));
  return id;
}

void Reactor::OnHeardByHand(JobId id, Now now, Actions& out) {
  const JobRecord* known = state_.FindJob(id);
  if (known == nullptr || !known->by_hand) return;
  JobRecord& job = state_.EditJob(id);
  job.by_hand->silence = Duration::zero();
  job.by_hand->last_heard = now.wall;
  const std::string text = fmt::format("reports again; it was {}", ExplainByHand(*job.by_hand));
  auto event = ComeBack(job, text, ActorOf(job), now);
  if (!event) return;
  out.push_back(std::move(*event));
  state_.Changed(id);
}

void Reactor::Recall(JobRecord job) {
  if (state_.FindJob(job.id) == nullptr) state_.AddJob(std::move(job));
}

void Reactor::EndByHand(JobId id, JobState to, Reason reason, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(id);
  // That nothing is heard is imgd's own finding.
  const std::string actor = reason.code == ReasonCode::kSilent ? "scheduler" : ActorOf(job);
  auto event = ChangeState(job, to, std::move(reason), actor, now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(id);
}

void Reactor::CountSilenceByHand(Duration passed, Now now, Actions& out) {
  std::vector<JobId> silent;
  for (const JobId id : state_.by_hand()) {
    ByHand& run = *state_.EditUnstored(id).by_hand;
    run.silence += passed;
    if (run.silence >= settings_.report_timeout) silent.push_back(id);
  }
  for (const JobId id : silent) {
    const ByHand& run = *state_.FindJob(id)->by_hand;
    EndByHand(id, JobState::kFailed,
              {ReasonCode::kSilent, fmt::format("nothing heard from it since {}; it was {}",
                                                UtcText(run.last_heard), ExplainByHand(run))},
              now, out);
  }
}

}  // namespace imgd
