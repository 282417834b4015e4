#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "server/core/explain.h"
#include "server/core/growth.h"
#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's events that come from trainers, and its scheduling.
namespace imgd {
namespace {

/// `row` may be of another node or another time.
void FillRow(NodeSlots& row, const NodeRecord& node) {
  row.id = node.id;
  row.holders = node.holders;
  row.usable = node.Usable();
  row.lost = node.state == NodeState::kLost || node.set_aside || !node.problems.empty() || node.notice;
  row.why_not = row.usable ? "" : ExplainNode(node);
  row.devices = node.indexes;
  // Mostly they are what they were, and to count once more who has them takes long.
  if (row.folders != node.folders) row.folders = node.folders;
  if (row.kind != node.kind) row.kind = node.kind;
  if (node.foreign.empty()) return;
  for (size_t i = 0; i < row.devices.size(); ++i) {
    if (row.holders[i] == JobId() && node.ForeignHolder(row.devices[i])) row.holders[i] = kForeignHolder;
  }
}

template <typename Container>
Container Emptied(Container& full) {
  full.clear();
  return std::move(full);
}

/// " (fabric f1)": the narrowest label that the gang's nodes share; empty where there is none, or one node.
std::string ExplainClose(const std::vector<const NodeRecord*>& nodes) {
  if (nodes.size() < 2) return "";
  for (auto name = kTopology.rbegin(); name != kTopology.rend(); ++name) {
    const auto label = nodes.front()->labels.find(*name);
    if (label == nodes.front()->labels.end()) continue;
    const bool shared = std::all_of(nodes.begin(), nodes.end(), [&label](const NodeRecord* node) {
      const auto own = node->labels.find(label->first);
      return own != node->labels.end() && own->second == label->second;
    });
    if (shared) return fmt::format(" ({} {})", label->first, label->second);
  }
  return "";
}

/// Whatever waits: it says so, and its user and its project have no more than their quotas let them.
bool KeepsItsDevices(const Holding& holding, const Snapshot& snapshot) {
  if (holding.job->preemptible) return false;
  const AccountNames& accounts = *holding.accounts;
  return std::none_of(accounts.begin(), accounts.end(), [&snapshot](const std::string& account) {
    const auto allowance = snapshot.allowances.find(account);
    return allowance != snapshot.allowances.end() && !allowance->second.Has(0);
  });
}

/// The job's accounts have so many devices more.
void CountUsed(const JobRecord& job, uint32_t devices, Snapshot& snapshot) {
  for (const auto& account : AccountsOf(job)) {
    const auto allowance = snapshot.allowances.find(account);
    if (allowance != snapshot.allowances.end() && allowance->second.devices > 0)
      allowance->second.used += devices;
  }
}

/// Of a run whose ranks are not gone. One that grows keeps what it has.
Leaving LeavingBy(StopFor stop) {
  if (stop == StopFor::kNothing || stop == StopFor::kGrow) return Leaving::kNot;
  if (stop == StopFor::kRetry) return Leaving::kComesBack;
  return GivesBack(stop) ? Leaving::kGoesOn : Leaving::kForGood;
}

}  // namespace

bool Reactor::AcceptsReportsOf(const NodeId& node, RunKey run, uint32_t rank) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job != nullptr && job->generation == run.generation) {
    const Part* part = PartOfRank(job->run, rank);
    if (part != nullptr && part->node == node) return true;
  }
  ++stale_reports_;
  return false;
}

void Reactor::OnRelayed(RunKey run, Now now) {
  const JobRecord* job = ActiveRun(run);
  if (job == nullptr || job->run.gone_since == Instant{}) return;
  state_.EditUnstored(run.job).run.gone_since = now.steady;
}

void Reactor::OnTrainerStarted(RunKey run, uint32_t rank, Now now, Actions& out) {
  const JobRecord* job = ActiveRun(run);
  if (job == nullptr || rank >= job->WorldSize()) return;
  state_.EditJob(run.job).run.started.insert(rank);
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerProgress(RunKey run, Duration left, Now now) {
  const JobRecord* job = ActiveRun(run);
  if (job != nullptr && !job->by_hand) state_.EditUnstored(run.job).run.expected_end = now.steady + left;
}

void Reactor::OnTrainerCheckpoint(RunKey run, Checkpoint checkpoint, Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(run.job);
  // A run that was started by hand numbers its starts itself.
  const bool own_numbers = job != nullptr && job->by_hand;
  if (job == nullptr || job->generation != run.generation ||
      (!own_numbers && checkpoint.generation != run.generation)) {
    ++stale_reports_;
    return;
  }
  JobRecord& edited = state_.EditJob(run.job);
  checkpoint.accepted = now.wall;
  out.push_back(SaveCheckpoint{run.job, checkpoint});
  AcceptCheckpoint(edited, std::move(checkpoint));
  edited.run.kept_since = now.steady;
  // Told late, of a start that is over: the next one has to go where the checkpoint can be seen.
  if (edited.state != JobState::kQueued) return;
  state_.Changed(run.job);
  dirty_ = true;
}

void Reactor::OnTrainerFinished(RunKey run, uint32_t rank, Now now, Actions& out) {
  const JobRecord* job = ActiveRun(run);
  if (job == nullptr || rank != 0) return;
  if (job->by_hand) {
    EndByHand(run.job, JobState::kCompleted, {ReasonCode::kFinished, "trained to the last step"}, now, out);
    return;
  }
  state_.EditJob(run.job).run.finished = true;
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerFailed(RunKey run, RankFailure failure, Now now, Actions& out) {
  const JobRecord* job = ActiveRun(run);
  if (job == nullptr) return;
  if (job->by_hand) {
    const auto code = failure.bad_input ? ReasonCode::kBadInput : ReasonCode::kRankFailed;
    EndByHand(run.job, JobState::kFailed,
              {code, failure.message.empty() ? "the run ended without saying why" : failure.message}, now,
              out);
    return;
  }
  state_.EditJob(run.job).run.failures.push_back(std::move(failure));
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerEventsLost(const NodeId& node, RunKey run, uint32_t rank, uint64_t count,
                                  const std::string& reason, Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job == nullptr || job->generation != run.generation) return;
  out.push_back(AppendEvent{
      .job = run.job,
      .generation = run.generation,
      .from = job->state,
      .to = job->state,
      .reason = {job->reason.code, fmt::format("{} of rank {} {} lost: {}",
                                               count == 1 ? "1 event" : fmt::format("{} events", count), rank,
                                               count == 1 ? "is" : "are", reason)},
      .actor = fmt::format("agent:{}", node),
      .time = now.wall});
}

Snapshot Reactor::FreeAndHeld(Now now, Snapshot memory) const {
  Snapshot snapshot{.now = now.steady,
                    .nodes = std::move(memory.nodes),
                    .job_names = Emptied(memory.job_names),
                    .ends = Emptied(memory.ends),
                    .estimated = Emptied(memory.estimated),
                    .holders = Emptied(memory.holders)};
  FillAllowances(snapshot, now);
  snapshot.nodes.resize(state_.nodes().size());
  auto row = snapshot.nodes.begin();
  for (const NodeRecord* const node : state_.all_nodes()) FillRow(*row++, *node);
  const size_t held = state_.holdings().size();
  snapshot.job_names.reserve(held);
  snapshot.ends.reserve(held);
  snapshot.holders.reserve(held);
  for (const auto& [id, holding] : state_.holdings()) AddHolder(holding, snapshot);
  return snapshot;
}

/// Its devices are its own in the snapshot already. Cheap where no later job was added before.
void Reactor::AddHolder(const Holding& holding, Snapshot& snapshot) const {
  const JobRecord& job = *holding.job;
  const Instant now = snapshot.now;
  const int priority = state_.ranking().PriorityOfRun(job);
  snapshot.job_names.insert_or_assign(snapshot.job_names.end(), job.id, job.name);
  const StopFor stop = job.run.stop;
  // A run that is over only waits for its last reports: mostly that it trained to the last step.
  const bool over = stop == StopFor::kNothing && job.run.gone_since != Instant{};
  const Leaving leaving = over ? Leaving::kForGood : LeavingBy(stop);
  // The earliest counts: that a time limit is over is noticed a moment later.
  std::optional<Instant> end;
  if (const auto most = LongestStart(job)) end = job.run.held_since + *most;
  const auto bound = [&end](Instant by) { end = std::min(end.value_or(by), by); };
  if (const auto expected = job.run.expected_end; expected && (!end || *expected < *end)) {
    bound(std::max(*expected, now));
    snapshot.estimated.insert(snapshot.estimated.end(), job.id);
  }
  if (over) {
    bound(job.run.gone_since + settings_.settle);
  } else if (leaving == Leaving::kForGood || leaving == Leaving::kGoesOn) {
    bound(job.run.stop_since + TimeToStop(job));
  }
  if (end) snapshot.ends.insert_or_assign(snapshot.ends.end(), job.id, *end);
  snapshot.holders.insert_or_assign(snapshot.holders.end(), job.id,
                                    Holder{.priority = priority,
                                           .aged = priority - job.priority,
                                           .preemptible = settings_.preemption && leaving == Leaving::kNot &&
                                                          !KeepsItsDevices(holding, snapshot),
                                           .leaving = leaving,
                                           .to_stop = TimeToStop(job),
                                           .at_risk = (now - job.run.kept_since) * holding.devices});
}

/// What FreeAndHeld() would have of a job that has started since.
void Reactor::AddStarted(const Placement& placement, Snapshot& snapshot) const {
  const Holding& holding = state_.holdings().at(placement.job);
  for (const auto& part : placement.parts) snapshot.NodeOf(part.node)->Take(placement.job, part);
  CountUsed(*holding.job, holding.devices, snapshot);
  AddHolder(holding, snapshot);
}

Snapshot Reactor::MakeSnapshot(Now now) const {
  Snapshot snapshot = FreeAndHeld(now);
  AddPlanned(snapshot);
  return snapshot;
}

/// What the latest plan keeps, and for whom.
void Reactor::AddPlanned(Snapshot& snapshot) const {
  const auto waits = [this](const Reservation& reserved) {
    const JobRecord* job = state_.FindJob(reserved.job);
    return job != nullptr && job->state == JobState::kQueued;
  };
  snapshot.reserved = reserved_;
  if (!std::all_of(reserved_->begin(), reserved_->end(), waits)) {
    Reservations left;
    std::copy_if(reserved_->begin(), reserved_->end(), std::back_inserter(left), waits);
    snapshot.reserved = std::make_shared<const Reservations>(std::move(left));
  }
  for (const auto& reserved : *snapshot.reserved)
    snapshot.job_names[reserved.job] = state_.FindJob(reserved.job)->name;
  for (const auto& kept : kept_) {
    const JobRecord* job = state_.FindJob(kept.job);
    if (job == nullptr || job->state != JobState::kQueued) continue;
    snapshot.job_names[job->id] = job->name;
    snapshot.retrying.insert(job->id);
    size_t devices = 0;
    for (const auto& part : kept.parts) {
      NodeSlots* const node = snapshot.NodeOf(part.node);
      if (node == nullptr) continue;
      node->Take(job->id, part);
      devices += part.whole ? node->devices.size() : part.devices.size();
    }
    CountUsed(*job, static_cast<uint32_t>(devices), snapshot);
  }
}

bool Reactor::BackoffDue(Now now) const { return now.steady >= next_backoff_; }

void Reactor::Settle(Now now, Actions& out) {
  Drain(now, out);
  FindElsewhere(now);
  for (auto& news : std::exchange(news_, {})) out.push_back(std::move(news));
}

void Reactor::Schedule(Now now, Actions& out) {
  Settle(now, out);
  if (!dirty_) return;
  dirty_ = false;
  NoteEmptied(now, out);
  Regroup(now, out);
  next_backoff_ = Instant::max();
  PutInOrder(now);
  Snapshot cluster = FreeAndHeld(now, std::move(last_seen_));
  NoteRelease(cluster);
  Plan plan = MakePlan(cluster, state_.queue(), layout_);
  for (const auto& job : state_.queue()) {
    if (job.not_before > now.steady) next_backoff_ = std::min(next_backoff_, job.not_before);
  }
  const auto before =
      std::exchange(reserved_, std::make_shared<const Reservations>(std::move(plan.reserved)));
  kept_ = std::move(plan.kept);
  for (const auto& placement : plan.starts) StartJob(placement, now, out);
  bool preempted = false;
  for (const auto& reserved : *reserved_) {
    state_.Promise(reserved.job);
    Preempt(reserved.victims, reserved.job, cluster, now, out);
    NoteReservation(*before, reserved, now, out);
    preempted = preempted || !reserved.victims.empty();
  }
  for (const auto& reserved : *before) NoteNotReserved(reserved, *before, cluster, now, out);
  std::erase_if(passed_over_, [this](const auto& told) {
    const JobRecord* job = state_.FindJob(told.first);
    return job == nullptr || job->state != JobState::kQueued;
  });
  if (preempted) {
    cluster = FreeAndHeld(now, std::move(cluster));
  } else {
    for (const auto& placement : plan.starts) AddStarted(placement, cluster);
  }
  AddPlanned(cluster);
  SetWaits(plan.waits, cluster, now, out);
  Grow(cluster, now, out);
  Drain(now, out);
  last_seen_ = std::move(cluster);
}

void Reactor::StartJob(const Placement& placement, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(placement.job);
  const std::string resized = ExplainResize(job, placement.parts, state_, placement.quota_left);
  const uint64_t least = settings_.first_generation.value();
  if (job.generation.value() + 1 < least) job.generation = Generation(least - 1);
  BeginRun(job, placement.parts, now);
  std::vector<const NodeRecord*> records;
  std::string nodes;
  for (const auto& part : job.run.parts) {
    nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", part.node);
    records.push_back(state_.FindNode(part.node));
  }
  nodes += ExplainClose(records);
  Reason reason{ReasonCode::kPlaced, fmt::format("placed on {}; its ranks are being started", nodes)};
  if (placement.passes != JobId()) {
    const JobRecord& first = *state_.FindJob(placement.passes);
    const bool kept = ReservationOf(*reserved_, first.id) != nullptr;
    reason = {ReasonCode::kBackfilled, fmt::format("placed on {}, {} job {} ({}), which comes first{}", nodes,
                                                   kept ? "beside what is kept for" : "before", first.id,
                                                   first.name, kept ? "" : " but needs more than is free")};
  }
  if (!resized.empty()) reason = {ReasonCode::kResized, fmt::format("{}; {}", resized, reason.text)};
  auto event = ChangeState(job, JobState::kStarting, std::move(reason), "scheduler", now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(job.id);
  pending_.insert(job.id);
}

void Reactor::Preempt(const std::vector<JobId>& victims, JobId for_job, const Snapshot& cluster, Now now,
                      Actions& out) {
  const JobRecord& first = *state_.FindJob(for_job);
  for (const JobId id : victims) {
    AskBack(state_.EditJob(id), StopFor::kPreempt, "",
            fmt::format("preempted for job {} ({}), whose priority is {}: {}", for_job, first.name,
                        first.priority, ExplainVictim(cluster, victims, id)),
            now, out);
  }
}

/// Of how many at the queue's head it is recorded that they are passed over; those behind are many.
constexpr size_t kToldOfFirst = 100;

/// The record has each job for which it is passed over, once.
void Reactor::NotePassedOver(JobId id, const Reservation* kept, size_t place, Now now, Actions& out) {
  if (kept == nullptr || !passed_over_[id].insert(kept->job).second) return;
  const JobRecord* first = state_.FindJob(kept->job);
  out.push_back(AppendDecision{
      .job = id,
      .reason = {ReasonCode::kWaitsBehindJob,
                 fmt::format(
                     "passed over: what is free is kept for job {} ({}), which comes first; position {}",
                     first->id, first->name, place + 1)},
      .actor = "scheduler",
      .time = now.wall});
}

/// `changes`: in the order of the queue.
void Reactor::SetWaits(const std::vector<WaitChange>& changes, const Snapshot& cluster, Now now,
                       Actions& out) {
  WaitTexts texts(cluster, layout_);
  size_t place = 0;
  for (const auto& change : changes) {
    // A backoff was given its reason, and its row in the history, when it began.
    if (change.code == ReasonCode::kBackoff) continue;
    while (state_.queue()[place].id != change.job) ++place;
    SetWait(place, change.code, texts, now, out);
  }
  // Also of those who waited behind another job before, or further back.
  const size_t told = std::min(kToldOfFirst, state_.queue().size());
  // By all that Kept::From() asks of a job.
  std::map<std::tuple<const Needs*, uint32_t, uint32_t, size_t>, const Reservation*> kept_from;
  for (place = 0; place < told; ++place) {
    const QueuedJob& job = state_.queue()[place];
    if (job.code != ReasonCode::kWaitsBehindJob) continue;
    const auto [kept, is_new] = kept_from.try_emplace(
        {job.needs.place(), job.ranks_per_node, job.most_devices, texts.kept().Before(job)});
    if (is_new) kept->second = texts.kept().From(job);
    NotePassedOver(job.id, kept->second, place, now, out);
  }
}

void Reactor::SetWait(size_t place, ReasonCode code, WaitTexts& texts, Now now, Actions& out) {
  const JobId id = state_.queue()[place].id;
  const JobRecord& known = *state_.FindJob(id);
  if (TriesElsewhere(known.reason.code) && !known.avoid.empty()) {
    // Others took what FindElsewhere() had found free: it may go anywhere, and the next plan says why it
    // waits.
    state_.EditJob(id).avoid.clear();
    state_.Changed(id);
    dirty_ = true;
    return;
  }
  state_.SetWait(place, code);
  // These two take turns whenever a device comes free; who asks is told which it is.
  const auto waits = [](ReasonCode of) {
    return of == ReasonCode::kWaitsForDevices || of == ReasonCode::kWaitsBehindJob;
  };
  if (waits(code) && waits(known.reason.code)) return;
  JobRecord& job = state_.EditJob(id);
  const Waiting waiting = WaitingAt(state_.queue(), place);
  auto event = ChangeState(job, JobState::kQueued, {code, texts.Of(waiting)}, "scheduler", now);
  if (event) out.push_back(std::move(*event));
}

}  // namespace imgd
