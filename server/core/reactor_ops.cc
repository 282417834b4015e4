#include <fmt/format.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/folders.h"
#include "server/core/job.h"
#include "server/core/reactor.h"
#include "server/core/room.h"

/// The reactor's part in what somebody asks of jobs and nodes.
namespace imgd {
namespace {

template <typename... Args>
tl::unexpected<Error> Refuse(std::string hint, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected(Error{.code = ErrorCode::kFailedPrecondition,
                              .message = fmt::format(text, std::forward<Args>(args)...),
                              .hint = std::move(hint)});
}

std::string UserActor(const std::string& name) { return fmt::format("user:{}", name); }

/// Why the job's run ends already; empty while nobody ends it.
std::string Ending(const JobRecord& job) {
  switch (job.HoldsDevices() ? job.run.stop : StopFor::kNothing) {
    case StopFor::kNothing:
      return "";
    case StopFor::kRetry:
      return "is being stopped after a failure";
    case StopFor::kCancel:
      return fmt::format("is being cancelled by {}", job.run.stop_actor);
    case StopFor::kTimeLimit:
      return "is being ended, for its time_limit is over";
    case StopFor::kHalve:
      return "is being " + job.run.stop_text;
    case StopFor::kPause:
      return fmt::format("is being paused by {}", job.run.stop_actor);
    case StopFor::kMove:
      return fmt::format("is being moved by {}", job.run.stop_actor);
    case StopFor::kGrow:
    case StopFor::kDrain:
    case StopFor::kNotice:
    case StopFor::kPreempt:
      return fmt::format("gives its devices back: {}", job.run.stop_text);
  }
  return "";
}

int64_t HeldMs(const JobRecord& job, Instant now) {
  if (!job.HoldsDevices()) return job.held_ms;
  return job.held_ms +
         std::chrono::duration_cast<std::chrono::milliseconds>(now - job.run.held_since).count();
}

std::string LimitText(int64_t ms) { return ms == 0 ? "none" : fmt::format("{} s", ms / 1000); }

std::string NamesOf(const std::vector<Part>& parts) {
  std::vector<std::string> names;
  for (const auto& part : parts) names.push_back(part.node.name());
  return fmt::format("{}", fmt::join(names, ", "));
}

bool OnSameNodes(const std::vector<Part>& a, const std::vector<Part>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Part& x, const Part& y) { return x.node == y.node; });
}

/// The same but for when it begins, as far as that is within a minute, or within a quarter of the time until
/// then where it is an estimate.
bool IsSame(const Reservation& a, const Reservation& b, Instant now) {
  if (a.from.has_value() != b.from.has_value() || !OnSameNodes(a.parts, b.parts)) return false;
  if (!a.from) return true;
  const Duration moved = *a.from > *b.from ? *a.from - *b.from : *b.from - *a.from;
  const Duration close = b.estimate ? (*b.from - now) / 4 : Duration::zero();
  return moved < std::max<Duration>(close, std::chrono::minutes(1));
}

bool ShareDevices(const std::vector<Part>& some, const std::vector<Part>& others) {
  const auto share = [](const Part& a, const Part& b) {
    const auto takes = [&b](uint32_t device) { return b.Takes(device); };
    return a.node == b.node && (a.whole || b.whole || std::ranges::any_of(a.devices, takes));
  };
  return std::ranges::any_of(some, [&](const Part& a) {
    return std::ranges::any_of(others, [&](const Part& b) { return share(a, b); });
  });
}

/// When it begins, of one for which that is known.
std::string FromText(const Reservation& reserved, Now now) {
  return InText(*reserved.from - now.steady, reserved.estimate);
}

}  // namespace

Result<JobRecord*> Reactor::JobForOrder(JobId id, std::string_view what) {
  const JobRecord* job = state_.FindJob(id);
  if (job == nullptr) return Fail(ErrorCode::kNotFound, "there is no job {}", id);
  if (IsFinal(job->state)) {
    return Refuse(fmt::format("imgcli rerun {} makes a new job of its file", id),
                  "job {} cannot be {}: it has ended already ({})", id, what, NameOf(job->state));
  }
  if (job->by_hand) {
    return Refuse("whoever started it can stop it there and start it again",
                  "job {} cannot be {}: it was {}, and imgd has no part in it", id, what,
                  ExplainByHand(*job->by_hand));
  }
  return &state_.EditJob(id);
}

/// Has the run's devices given back: through a checkpoint where it trains.
void Reactor::AskBack(JobRecord& job, StopFor stop, const std::string& actor, std::string text, Now now,
                      Actions& out) {
  Run& run = job.run;
  const bool first = run.stop == StopFor::kNothing;
  if (first) {
    run.stop_since = now.steady;
    run.checkpoint_first = job.state == JobState::kRunning && job.Trains();
    run.saved = false;
  }
  GiveUpGrowth(job.id, now);
  run.stop = stop;
  run.stop_actor = actor;
  run.stop_text = std::move(text);
  const bool ran = first && job.state == JobState::kRunning;
  const std::string_view how = run.checkpoint_first   ? "a checkpoint is written first"
                               : ran || !job.Trains() ? "its processes are told to end"
                               : first ? "it did not train yet, and its ranks are being stopped"
                                       : "its ranks are being stopped already";
  // One that only begins, or that ends already, stays what it is until its ranks are gone.
  const JobState to = run.checkpoint_first || ran ? JobState::kPreempting : job.state;
  auto event =
      ChangeState(job, to, {StopCode(stop), fmt::format("{}; {}", run.stop_text, how)}, StopActor(run), now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(job.id);
  pending_.insert(job.id);
}

Status Reactor::OnPause(JobId id, const std::string& actor, Now now, Actions& out) {
  IMGD_ASSIGN(JobRecord* const job, JobForOrder(id, "paused"));
  if (job->state == JobState::kPaused) {
    return Refuse(fmt::format("imgcli resume {} goes on with it", id), "job {} is paused already", id);
  }
  const std::string text = fmt::format("paused by {}", actor);
  if (job->HoldsDevices()) {
    const StopFor stop = job->run.stop;
    const bool ends = stop == StopFor::kCancel || stop == StopFor::kTimeLimit || stop == StopFor::kHalve;
    if (stop == StopFor::kPause || ends) {
      return Refuse("", "job {} cannot be paused: it {}", id, Ending(*job));
    }
    // What comes of the failure is not to be lost: it may be the end.
    if (stop == StopFor::kRetry) {
      return Refuse("if it is to start again it can be paused while it waits for that",
                    "job {} cannot be paused: it {}", id, Ending(*job));
    }
    AskBack(*job, StopFor::kPause, actor, text, now, out);
    Drain(now, out);
    return {};
  }
  auto event = ChangeState(*job, JobState::kPaused,
                           {ReasonCode::kPausedByUser, fmt::format("{} while it waited", text)},
                           UserActor(actor), now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(id);
  dirty_ = true;
  return {};
}

Status Reactor::OnResume(JobId id, const std::string& actor, Now now, Actions& out) {
  IMGD_ASSIGN(JobRecord* const job, JobForOrder(id, "resumed"));
  if (job->state != JobState::kPaused) {
    const bool soon = job->HoldsDevices() && job->run.stop == StopFor::kPause;
    if (soon)
      return Refuse("imgcli pause --wait waits for that",
                    "job {} is still being paused; it can be resumed when it is PAUSED", id);
    return Refuse("only what imgcli pause has stopped can be resumed", "job {} is not paused: it is {}", id,
                  NameOf(job->state));
  }
  if (job->time_limit_ms > 0 && job->held_ms >= job->time_limit_ms) {
    return Refuse(fmt::format("imgcli extend {} TIME gives it more", id),
                  "job {} cannot be resumed: its time_limit of {} is used up", id,
                  TimeText(std::chrono::milliseconds(job->time_limit_ms)));
  }
  job->not_before = {};
  job->retry_at = {};
  job->avoid.clear();
  auto event =
      ChangeState(*job, JobState::kQueued, {ReasonCode::kResumedByUser, fmt::format("resumed by {}", actor)},
                  UserActor(actor), now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(id);
  dirty_ = true;
  TryElsewhere(id, {});
  return {};
}

/// Whether nodes other than its own could hold the job, if nothing else ran on them.
Status Reactor::CouldMove(const JobRecord& job) const {
  std::vector<NodeSlots> nodes;
  for (const auto& [id, node] : state_.nodes()) {
    NodeSlots slots{.id = id, .folders = node.folders, .kind = node.kind};
    const bool counts = node.state != NodeState::kLost && !node.set_aside && node.problems.empty() &&
                        !node.notice && PartOnNode(job.run, id) == nullptr;
    // Its own nodes stay in the list, for they say which others see its checkpoints.
    for (const auto& device : node.devices) {
      if (counts) slots.devices.push_back(device.index);
    }
    slots.holders.resize(slots.devices.size());
    nodes.push_back(std::move(slots));
  }
  const Fit fit = Room(nodes).FitOf({.nodes = job.nodes,
                                     .ranks_per_node = job.ranks_per_node,
                                     .needs = job.needs,
                                     .folder = FolderOf(job),
                                     .resumes_with = NodeWithCheckpoints(job)});
  if (fit.with_lost >= job.nodes) return {};
  return Refuse(
      "add nodes, or undrain some; imgcli pause frees the devices without a new place",
      "job {} cannot be moved: it needs {} node{} with {} device{} each besides {}{}; {} could hold it",
      job.id, job.nodes, job.nodes == 1 ? "" : "s", job.ranks_per_node, job.ranks_per_node == 1 ? "" : "s",
      NamesOf(job.run.parts), FolderOf(job).empty() ? "" : " that see its checkpoints",
      fit.with_lost == 0 ? "none" : fmt::format("only {}", fit.with_lost));
}

Status Reactor::OnMove(JobId id, const std::string& actor, Now now, Actions& out) {
  IMGD_ASSIGN(JobRecord* const job, JobForOrder(id, "moved"));
  if (!job->HoldsDevices()) {
    return Refuse("only a job that runs has nodes to be moved off", "job {} cannot be moved: it is {}", id,
                  NameOf(job->state));
  }
  if (job->run.stop != StopFor::kNothing && job->run.stop != StopFor::kGrow)
    return Refuse("", "job {} cannot be moved: it {}", id, Ending(*job));
  IMGD_TRY(CouldMove(*job));
  AskBack(*job, StopFor::kMove, actor, fmt::format("moved off {} by {}", NamesOf(job->run.parts), actor), now,
          out);
  Drain(now, out);
  return {};
}

void Reactor::NoteChange(const JobRecord& job, std::string text, const std::string& actor, Now now,
                         Actions& out) {
  // The reason of its state stays what it was.
  out.push_back(AppendEvent{.job = job.id,
                            .generation = job.generation,
                            .from = job.state,
                            .to = job.state,
                            .reason = {ReasonCode::kChangedByUser, std::move(text)},
                            .actor = UserActor(actor),
                            .time = now.wall});
}

Status Reactor::OnSetPriority(JobId id, int priority, const std::string& actor, Now now, Actions& out) {
  IMGD_ASSIGN(JobRecord* const job, JobForOrder(id, "given another priority"));
  if (job->priority == priority) return {};
  NoteChange(*job, fmt::format("priority {} instead of {}, by {}", priority, job->priority, actor), actor,
             now, out);
  job->priority = priority;
  state_.Changed(id);
  dirty_ = true;
  return {};
}

/// What was placed on devices that were kept already for one that comes first is over before that one needs
/// them, and stays so.
Status Reactor::MayRunLonger(const JobRecord& job, int64_t limit_ms, Now now) const {
  if (!job.HoldsDevices()) return {};
  JobRecord longer = job;
  longer.time_limit_ms = limit_ms;
  const auto most = LongestStart(longer);
  const auto held = std::chrono::duration_cast<std::chrono::microseconds>(now.steady - job.run.held_since);
  const WallTime began{now.wall.micros - held.count()};
  for (const auto& reserved : *reserved_) {
    const JobRecord* first = state_.FindJob(reserved.job);
    if (!reserved.from || first == nullptr || first->state != JobState::kQueued) continue;
    const bool passed = first->submitted < began && state_.KeyOf(*first).Before(state_.KeyOf(job));
    const bool in_time = most && job.run.held_since + *most <= *reserved.from;
    if (!passed || in_time || !ShareDevices(reserved.parts, job.run.parts)) continue;
    return Refuse(
        fmt::format("imgcli explain {} says when that is", first->id),
        "job {} cannot run longer than until job {} ({}) can start, {}: it was placed on what is kept "
        "for that one, which comes first",
        job.id, first->id, first->name, FromText(reserved, now));
  }
  return {};
}

Status Reactor::OnSetTimeLimit(JobId id, TimeLimitChange change, const std::string& actor, Now now,
                               Actions& out) {
  IMGD_ASSIGN(JobRecord* const job, JobForOrder(id, "given another time_limit"));
  if (!change.to_ms && job->time_limit_ms == 0) {
    return Refuse(fmt::format("imgcli extend {} --to TIME gives it one", id),
                  "job {} has no time_limit that could be longer or shorter", id);
  }
  if (job->HoldsDevices() && job->run.stop == StopFor::kTimeLimit)
    return Refuse("", "job {} cannot be given another time_limit: it {}", id, Ending(*job));
  const int64_t limit = change.to_ms.value_or(job->time_limit_ms + change.by_ms);
  const int64_t held = HeldMs(*job, now.steady);
  if (change.by_ms < 0 && limit < 1000) {
    return Refuse("imgcli pause or cancel ends it now",
                  "job {} cannot have {} less: its time_limit is {}, and a second is the least", id,
                  TimeText(std::chrono::milliseconds(-change.by_ms)),
                  TimeText(std::chrono::milliseconds(job->time_limit_ms)));
  }
  const bool none = change.to_ms && limit == 0;
  if (!none && (limit < 1000 || limit <= held)) {
    return Refuse(
        "imgcli pause or cancel ends it now",
        "job {} cannot have a time_limit of {}: it has held its devices for {}, and a second is the least",
        id, TimeText(std::chrono::milliseconds(limit)), TimeText(std::chrono::milliseconds(held)));
  }
  if (limit == job->time_limit_ms) return {};
  const bool is_longer = job->time_limit_ms > 0 && (none || limit > job->time_limit_ms);
  if (is_longer) IMGD_TRY(MayRunLonger(*job, limit, now));
  NoteChange(*job,
             fmt::format("time_limit {} instead of {}, by {}", LimitText(limit),
                         LimitText(job->time_limit_ms), actor),
             actor, now, out);
  job->time_limit_ms = limit;
  state_.Changed(id);
  dirty_ = true;
  return {};
}

void Reactor::NoteNode(const NodeId& node, ReasonCode code, std::string text, const std::string& actor,
                       Now now, Actions& out) {
  out.push_back(
      AppendDecision{.node = node, .reason = {code, std::move(text)}, .actor = actor, .time = now.wall});
}

Status Reactor::OnSetAside(const NodeId& id, bool drain, const std::string& reason, const std::string& actor,
                           Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr) return Fail(ErrorCode::kNotFound, "there is no node {}", id);
  // What imgd set aside may be taken over: then it stays so until somebody undoes it.
  const bool by_user = known->set_aside && known->set_aside->by == AsideBy::kUser;
  if (by_user && (known->set_aside->drain || !drain)) {
    const auto& aside = *known->set_aside;
    return Refuse(fmt::format("imgcli node {} {} undoes it", aside.drain ? "undrain" : "uncordon", id),
                  "node {} {} already", id, ExplainAside(*known));
  }
  NodeRecord& node = state_.EditNode(id);
  node.set_aside = {.drain = drain, .reason = reason, .actor = actor, .since = now.wall};
  const std::string why = reason.empty() ? "" : fmt::format(": {}", reason);
  NoteNode(id, ReasonCode::kSetAsideByUser,
           fmt::format("node {} is {} by {}{}", id, drain ? "drained" : "cordoned", actor, why),
           UserActor(actor), now, out);
  dirty_ = true;
  if (drain)
    AskBackAllOn(id, StopFor::kDrain, actor, fmt::format("node {} is drained by {}{}", id, actor, why), now,
                 out);
  Drain(now, out);
  return {};
}

/// Has the devices given back of every run that has a part on the node and is not being ended already.
void Reactor::AskBackAllOn(const NodeId& id, StopFor stop, const std::string& actor, const std::string& text,
                           Now now, Actions& out) {
  for (const JobId job : std::set<JobId>(state_.active())) {
    const JobRecord& known = *state_.FindJob(job);
    const Part* part = PartOnNode(known.run, id);
    const bool stays = known.run.stop == StopFor::kNothing || known.run.stop == StopFor::kGrow;
    if (part == nullptr || part->Over() || !stays) continue;
    AskBack(state_.EditJob(job), stop, actor, text, now, out);
  }
}

Status Reactor::OnReturn(const NodeId& id, bool drained, const std::string& actor, Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr) return Fail(ErrorCode::kNotFound, "there is no node {}", id);
  const bool by_user = known->set_aside && known->set_aside->by == AsideBy::kUser;
  if (!known->set_aside || (by_user && known->set_aside->drain != drained)) {
    std::string hint;
    if (known->set_aside) hint = fmt::format("imgcli node {} {}", drained ? "uncordon" : "undrain", id);
    return Refuse(hint, "node {} is not {}{}", id, drained ? "drained" : "cordoned",
                  known->set_aside ? fmt::format("; it {}", ExplainAside(*known)) : "");
  }
  state_.EditNode(id).set_aside.reset();
  state_.EditNode(id).strikes.clear();
  NoteNode(id, ReasonCode::kReturnedByUser,
           fmt::format("node {} is {} by {}: it may be used again", id, drained ? "undrained" : "uncordoned",
                       actor),
           UserActor(actor), now, out);
  dirty_ = true;
  return {};
}

Status Reactor::OnForget(const NodeId& id, const std::string& actor, Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr) return Fail(ErrorCode::kNotFound, "there is no node {}", id);
  if (known->state != NodeState::kLost || known->Connected()) {
    return Refuse(fmt::format("end its agent first; imgd calls it lost {} s after it was last heard",
                              std::chrono::duration_cast<std::chrono::seconds>(settings_.lost_after).count()),
                  "node {} cannot be forgotten: it is not lost", id);
  }
  if (const auto job = LastOn(id)) {
    return Refuse(
        "try again when it has run elsewhere, or has ended",
        "node {} cannot be forgotten: job {} ran there last, and goes on from what only such nodes may see",
        id, *job);
  }
  state_.DropNode(id);
  NoteNode(id, ReasonCode::kNodeForgotten, fmt::format("node {} was lost and is forgotten, by {}", id, actor),
           UserActor(actor), now, out);
  dirty_ = true;
  return {};
}

/// A job that has not ended and had a part of its latest run there: its checkpoints are where that node sees
/// them.
std::optional<JobId> Reactor::LastOn(const NodeId& id) const {
  for (const auto& [job_id, job] : state_.jobs()) {
    if (!IsFinal(job.state) && PartOnNode(job.run, id) != nullptr) return job_id;
  }
  return std::nullopt;
}

/// Nodes whose names never come back, as a spot fleet's, would else be listed for ever. What somebody set
/// aside is to be so still when it is back.
void Reactor::ForgetLostNodes(Now now, Actions& out) {
  if (settings_.lost_nodes_kept_for == Duration::zero()) return;
  const auto kept = std::chrono::duration_cast<std::chrono::microseconds>(settings_.lost_nodes_kept_for);
  const int64_t since = now.wall.micros - kept.count();
  std::vector<NodeId> old;
  for (const auto& [id, node] : state_.nodes()) {
    const bool by_user = node.set_aside && node.set_aside->by == AsideBy::kUser;
    if (node.state == NodeState::kLost && !node.Connected() && !by_user &&
        node.last_heartbeat.micros < since && !LastOn(id))
      old.push_back(id);
  }
  for (const NodeId& id : old) {
    state_.DropNode(id);
    NoteNode(id, ReasonCode::kNodeForgotten, fmt::format("node {} was lost long ago and is forgotten", id),
             "scheduler", now, out);
    dirty_ = true;
  }
}

void Reactor::NoteEmptied(Now now, Actions& out) {
  std::vector<NodeId> emptied;
  for (const NodeRecord* const node : state_.all_nodes()) {
    if (node->set_aside && node->set_aside->drain && !node->set_aside->told_empty && node->IsEmpty())
      emptied.push_back(node->id);
  }
  for (const auto& id : emptied) {
    state_.EditNode(id).set_aside->told_empty = true;
    NoteNode(id, ReasonCode::kNodeEmpty, fmt::format("node {} is drained and empty: nothing runs there", id),
             "scheduler", now, out);
  }
}

/// "; job 3 (urgent) comes before it now", where one does that had nothing reserved before.
std::string Reactor::WhoCameBefore(JobId job, const Reservations& before) const {
  for (const auto& other : state_.queue()) {
    if (other.id == job) break;
    if (ReservationOf(*reserved_, other.id) == nullptr || ReservationOf(before, other.id) != nullptr)
      continue;
    return fmt::format("; job {} ({}) comes before it now", other.id, state_.FindJob(other.id)->name);
  }
  return "";
}

/// `all_before`: what was reserved by the plan before.
void Reactor::NoteReservation(const Reservations& all_before, const Reservation& reserved, Now now,
                              Actions& out) {
  const Reservation* const before = ReservationOf(all_before, reserved.job);
  if (before != nullptr && IsSame(*before, reserved, now.steady)) return;
  const JobRecord* job = state_.FindJob(reserved.job);
  if (job == nullptr) return;
  size_t devices = 0;
  for (const auto& part : reserved.parts)
    devices += part.whole ? state_.FindNode(part.node)->devices.size() : part.devices.size();
  std::string text =
      fmt::format("{} device{} on {} {} kept for job {} ({})", devices, devices == 1 ? "" : "s",
                  NamesOf(reserved.parts), devices == 1 ? "is" : "are", job->id, job->name);
  if (reserved.from) text += ", which can start " + FromText(reserved, now);
  if (before != nullptr && before->from && (!reserved.from || *reserved.from > *before->from))
    text += fmt::format("; before it could {}{}", FromText(*before, now),
                        WhoCameBefore(reserved.job, all_before));
  if (before != nullptr && !OnSameNodes(before->parts, reserved.parts))
    text += fmt::format("; before it was {}", NamesOf(before->parts));
  out.push_back(AppendDecision{.job = job->id,
                               .reason = {ReasonCode::kReserved, std::move(text)},
                               .actor = "scheduler",
                               .time = now.wall});
}

/// Where nothing is kept any more for a job that still waits.
void Reactor::NoteNotReserved(const Reservation& gone, const Reservations& before, const Snapshot& cluster,
                              Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(gone.job);
  if (job == nullptr || job->state != JobState::kQueued || ReservationOf(*reserved_, gone.job) != nullptr)
    return;
  // What was kept for it is free now, and is so for its retry.
  const auto is_it = [&gone](const Placement& kept) { return kept.job == gone.job; };
  if (std::any_of(kept_.begin(), kept_.end(), is_it)) return;
  std::string text = fmt::format("nothing is kept for job {} ({}) any more", job->id, job->name);
  if (gone.from) text += fmt::format("; it could start {}", FromText(gone, now));
  const std::string who = WhoCameBefore(gone.job, before);
  text += who;
  for (const auto& part : gone.parts) {
    const NodeSlots* const node = cluster.NodeOf(part.node);
    if (node == nullptr || !node->lost) continue;
    text += fmt::format("; node {} {}", node->id, node->why_not);
    break;
  }
  const ReasonCode code = who.empty() ? ReasonCode::kWaitsForDevices : ReasonCode::kWaitsBehindJob;
  out.push_back(AppendDecision{
      .job = job->id, .reason = {code, std::move(text)}, .actor = "scheduler", .time = now.wall});
}

uint64_t Reactor::LastStepOf(RunKey run) const {
  const auto watched = watched_.find(run.job);
  if (watched == watched_.end() || watched->second.generation != run.generation) return 0;
  uint64_t last = 0;
  for (const auto& [rank, heard] : watched->second.ranks) last = std::max(last, heard.pulse.step);
  return last;
}

}  // namespace imgd
