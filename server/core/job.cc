#include "server/core/job.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "server/core/crash.h"
#include "server/core/explain.h"

namespace imgd {
namespace {

constexpr int kBadInputExit = 2;
constexpr int kCollectiveExit = 10;
constexpr int kStoppedExit = 11;
constexpr int kSignalBase = 128;
constexpr int kTerm = 15;
constexpr int kKill = 9;

/// The signal that ended the rank, also when a handler or shell turned it into 128 + n; 0 for none.
int SignalOf(const RankExit& exit) {
  if (exit.signal != 0) return exit.signal;
  if (exit.exit_code > kSignalBase && exit.exit_code < kSignalBase + 65) return exit.exit_code - kSignalBase;
  return 0;
}

const RankFailure* FailureOf(const Run& run, uint32_t rank) {
  for (const auto& failure : run.failures) {
    if (failure.rank == rank) return &failure;
  }
  return nullptr;
}

/// Of what is in its log and what its trainer said: by the pattern that comes first.
std::optional<LogMatch> MatchOf(const Run& run, const RankExit& exit) {
  const auto* failure = FailureOf(run, exit.rank);
  if (failure == nullptr || !failure->match) return exit.match;
  return exit.match && exit.match->place < failure->match->place ? exit.match : failure->match;
}

bool IsCollective(JobKind kind, const Run& run, const RankExit& exit) {
  const auto* failure = FailureOf(run, exit.rank);
  const bool trains = kind == JobKind::kTraining;
  if ((trains && exit.exit_code == kCollectiveExit) || (failure != nullptr && failure->collective_broken))
    return true;
  const auto match = MatchOf(run, exit);
  return match && match->collective && !(trains && exit.exit_code == kBadInputExit);
}

/// A program that is none of ours may mean anything by its exit codes.
bool IsBadInput(JobKind kind, const Run& run, const RankExit& exit) {
  if (kind == JobKind::kCommand) return false;
  const auto* failure = FailureOf(run, exit.rank);
  return exit.signal == 0 && (exit.exit_code == kBadInputExit ||
                              (failure != nullptr && failure->bad_input && exit.exit_code != 0));
}

/// Causes in the order in which they are believed.
enum Weight {
  kBadInputWeight,
  kSickNodeWeight,  ///< a line in its log by which its node is to be excluded
  kSignalWeight,
  kLostWeight,
  kFailedWeight,
  kTimeoutWeight,
  kBrokenWeight
};

struct Cause {
  Weight weight;
  Reason reason;
  NodeId node = {};  ///< as in Verdict, as the next two
  std::optional<LogMatch> match = {};
  std::string place = {};  ///< of a crash, as CrashPlace() has it
  bool crash = false;      ///< a rank's own

  /// Of two, the one that tells more is believed: a broken GPU before what follows from it.
  bool Before(const Cause& other) const {
    if (weight != other.weight) return weight < other.weight;
    const auto tells = [](const std::optional<LogMatch>& m) { return m ? static_cast<int>(m->action) : 0; };
    return tells(match) > tells(other.match);
  }
};

bool EndedWell(const RankExit& exit) { return exit.exit_code == 0 && exit.signal == 0; }

std::string Describe(const Run& run, const RankExit& exit) {
  const auto* part = PartOfRank(run, exit.rank);
  std::string text = fmt::format("rank {} on node {} ", exit.rank, part != nullptr ? part->node.name() : "?");
  const int signal = SignalOf(exit);
  if (signal != 0) {
    const char* name = sigabbrev_np(signal);
    text += fmt::format("was killed by signal {}{}", signal,
                        name != nullptr ? fmt::format(" (SIG{})", name) : "");
    if (exit.signal == 0) text += fmt::format(", exit code {}", exit.exit_code);
  } else if (exit.exit_code == 0) {
    text += exit.told ? "was told to end there" : "ended with exit code 0 before the training was finished";
  } else {
    text += fmt::format("failed with exit code {}", exit.exit_code);
  }
  if (!exit.where.empty()) text += fmt::format(" at {}", exit.where);
  if (const auto* failure = FailureOf(run, exit.rank); failure != nullptr && !failure->message.empty()) {
    text += fmt::format(": {}", failure->message);
  } else if (!exit.last_line.empty() && (exit.last_error_line.empty() || IsFromOutside(signal))) {
    // Who was killed had no time to complain: what it said on standard error may be of long before.
    text += fmt::format("; last log line: {}", exit.last_line);
  } else if (!exit.last_error_line.empty()) {
    text += fmt::format("; last error line: {}", exit.last_error_line);
  }
  return text;
}

/// Then a collective that breaks there is its consequence.
bool TellsOfSickNode(const std::optional<LogMatch>& match) {
  return match && match->action == PatternAction::kExcludeNode;
}

Cause CauseOfExit(JobKind kind, const Run& run, const RankExit& exit) {
  const auto* failure = FailureOf(run, exit.rank);
  if (IsBadInput(kind, run, exit)) {
    const bool told = failure != nullptr && !failure->message.empty();
    return {kBadInputWeight, {ReasonCode::kBadInput, told ? failure->message : Describe(run, exit)}};
  }
  const int signal = SignalOf(exit);
  const auto match = MatchOf(run, exit);
  const bool sick = TellsOfSickNode(match);
  const bool collective = IsCollective(kind, run, exit) && !sick;
  Cause cause{.weight = sick                  ? kSickNodeWeight
                        : collective          ? kBrokenWeight
                        : signal != 0         ? kSignalWeight
                        : exit.exit_code == 0 ? kTimeoutWeight
                                              : kFailedWeight,
              .reason = {collective    ? ReasonCode::kCollectiveBroken
                         : signal != 0 ? ReasonCode::kRankKilled
                                       : ReasonCode::kRankFailed,
                         Describe(run, exit)},
              .match = match};
  if (collective) return cause;
  cause.crash = true;
  cause.place = CrashPlace(exit, signal, failure);
  const auto* part = PartOfRank(run, exit.rank);
  // Of SIGKILL the node's memory may be the cause.
  const bool asked = IsFromOutside(signal) && signal != kKill;
  if (part != nullptr && (signal != 0 || exit.exit_code != 0) && !asked) cause.node = part->node;
  return cause;
}

Cause CauseOfTrouble(const Trouble& trouble) {
  const Weight weight = trouble.code == ReasonCode::kNodeLost ? kLostWeight : kFailedWeight;
  return {weight, {trouble.code, trouble.text}, trouble.node};
}

/// It ended of itself, and not as it should.
bool IsCause(JobKind kind, const RankExit& exit) {
  return !exit.by_us && (kind == JobKind::kTraining || exit.told || !EndedWell(exit));
}

Cause FindCause(JobKind kind, const Run& run) {
  std::optional<Cause> best;
  const auto offer = [&best](Cause cause) {
    if (!best || cause.Before(*best)) best = std::move(cause);
  };
  for (const auto& exit : run.exits) {
    if (IsCause(kind, exit)) offer(CauseOfExit(kind, run, exit));
  }
  for (const auto& trouble : run.troubles) offer(CauseOfTrouble(trouble));
  if (best) return *best;
  // Every rank ended by imgd's own signal, and nothing says why it was sent.
  return {kFailedWeight, {ReasonCode::kRankFailed, "the run ended without saying why"}};
}

/// Whether it is the fault of the job itself, or of whoever wrote it.
bool Counts(const Cause& cause) {
  if (cause.match && cause.match->action == PatternAction::kNoRetry) return true;
  if (cause.match && cause.match->action != PatternAction::kLabel) return false;
  switch (cause.reason.code) {
    case ReasonCode::kNodeLost:
    case ReasonCode::kCollectiveBroken:
    case ReasonCode::kRestored:
      return false;
    default:
      return true;
  }
}

/// `cause`: of its end, where that was not the limit.
Verdict TimeIsOver(const JobRecord& job, const std::string& cause) {
  const std::string checkpoint =
      !job.Trains() ? ""
      : job.checkpoints.empty()
          ? "; there is no checkpoint"
          : fmt::format("; its newest checkpoint is of step {}", job.checkpoints.front().step);
  return {
      JobState::kFailed,
      {ReasonCode::kTimeLimit,
       fmt::format("its time_limit of {} is over{}{}", TimeText(std::chrono::milliseconds(job.time_limit_ms)),
                   checkpoint, cause.empty() ? "" : "; its last start ended early: " + cause)},
      "scheduler",
      false};
}

/// "goes on from the checkpoint of step 70; 12 steps after it are lost and done again".
std::string Progress(const JobRecord& job, uint64_t last_step) {
  if (!job.Trains()) return fmt::format("its {} begins anew when it starts again", NameOf(job.kind));
  const uint64_t saved = job.checkpoints.empty() ? 0 : job.checkpoints.front().step;
  std::string text = job.checkpoints.empty()
                         ? "there is no checkpoint, so it begins anew"
                         : fmt::format("it goes on from the checkpoint of step {}", saved);
  if (last_step > saved) {
    const uint64_t lost = last_step - saved;
    text += fmt::format("; {} step{}{} {} lost and done again", lost, lost == 1 ? "" : "s",
                        job.checkpoints.empty() ? "" : " after it", lost == 1 ? "is" : "are");
  }
  return text;
}

bool EndedOfItself(const JobRecord& job) {
  return std::any_of(job.run.exits.begin(), job.run.exits.end(),
                     [&job](const RankExit& exit) { return IsCause(job.kind, exit); });
}

/// Of a run whose devices were asked back. Whatever its ranks died of meanwhile is no failure of the job, but
/// is told.
Verdict GaveBack(const JobRecord& job, const Reason& cause, uint64_t last_step) {
  const Run& run = job.run;
  std::string text = fmt::format("{}; {}", run.stop_text, Progress(job, last_step));
  if (!run.troubles.empty() || EndedOfItself(job)) text += fmt::format("; meanwhile {}", cause.text);
  const std::string actor = StopActor(run);
  if (run.stop == StopFor::kPause)
    return {JobState::kPaused, {ReasonCode::kPausedByUser, std::move(text)}, actor, false};
  if (job.time_limit_ms > 0 && job.held_ms >= job.time_limit_ms) return TimeIsOver(job, run.stop_text);
  return {JobState::kQueued, {StopCode(run.stop), std::move(text)}, actor, false};
}

/// Why a failed job is not tried again; nothing where it is.
std::optional<Reason> GivenUp(const JobRecord& job, const Cause& cause, const Verdict& verdict) {
  const std::string& text = verdict.reason.text;
  if (cause.match && cause.match->action == PatternAction::kNoRetry) {
    return Reason{ReasonCode::kLogPattern, fmt::format("{}; it is not tried again", text)};
  }
  if (verdict.counts && cause.crash && verdict.crashes->times >= kMostCrashesInPlace) {
    return Reason{ReasonCode::kSamePlace,
                  fmt::format("failed {} times running in the same place without a checkpoint between{}, so "
                              "that another start would not help: {}",
                              verdict.crashes->times, OnNodes(*verdict.crashes), text)};
  }
  if (verdict.counts && job.failures >= job.max_restarts) {
    return Reason{ReasonCode::kRetriesExhausted,
                  job.max_restarts == 0 ? fmt::format("{}; max_restarts is 0", text)
                                        : fmt::format("gave up after {} restart{}; the last: {}",
                                                      job.failures, job.failures == 1 ? "" : "s", text)};
  }
  const uint32_t in_row = FailuresInRow(job);
  if (!verdict.counts && cause.reason.code != ReasonCode::kNodeLost && in_row >= kMostWithoutProgress) {
    return Reason{
        ReasonCode::kRetriesExhausted,
        fmt::format("gave up after {} starts running without a checkpoint; the last: {}", in_row, text)};
  }
  return std::nullopt;
}

/// A log that speaks of a sick node is believed. One that speaks of a second one, without a checkpoint
/// between, is of a job that is at fault itself, as one is that fails on several nodes: it is a label from
/// then on.
bool IsDoubted(const Crashes& before, const Cause& cause) {
  return TellsOfSickNode(cause.match) && before.sick.size() + (before.sick.contains(cause.node) ? 0 : 1) > 1;
}

/// Where there is no port for the rendezvous no rank was started, so nothing of the job itself failed.
bool NothingRan(const Run& run) { return run.master_port == 0; }

Verdict Failed(const JobRecord& job, Cause cause) {
  Crashes before = job.run.progressed ? Crashes{} : job.crashes;
  const bool doubted = IsDoubted(before, cause);
  if (TellsOfSickNode(cause.match)) before.sick.insert(cause.node);
  if (doubted) cause.match->action = PatternAction::kLabel;
  Verdict verdict{.reason = cause.reason,
                  .actor = "scheduler",
                  .counts = Counts(cause),
                  .node = cause.node,
                  .match = cause.match,
                  .doubted = doubted};
  if (cause.match) verdict.reason.text += fmt::format("; {}", ExplainMatch(*cause.match));
  if (doubted) verdict.reason.text += ", as it did of another node, so that neither is believed";
  verdict.crashes =
      After(std::move(before), cause.crash && verdict.counts ? std::optional(cause.place) : std::nullopt,
            TellsOfSickNode(cause.match) || NothingRan(job.run) ? NodeId() : cause.node);
  if (auto why = GivenUp(job, cause, verdict)) {
    verdict.to = JobState::kFailed;
    verdict.reason = std::move(*why);
  } else if (job.time_limit_ms > 0 && job.held_ms >= job.time_limit_ms) {
    const Verdict over = TimeIsOver(job, verdict.reason.text);
    verdict.to = over.to;
    verdict.reason = over.reason;
    verdict.counts = false;
  }
  return verdict;
}

/// A trainer says itself that it came to its last step, also after it was told to stop. A program that ends
/// with 0 then may only have put its work aside.
bool AllEndedWell(const JobRecord& job) {
  const Run& run = job.run;
  return (run.finished || !job.Trains()) && run.exits.size() == job.WorldSize() &&
         std::all_of(run.exits.begin(), run.exits.end(), [&job](const RankExit& exit) {
           return EndedWell(exit) && (job.Trains() || !exit.told);
         });
}

std::string Finished(const JobRecord& job) {
  if (job.Trains()) return "trained to the last step";
  if (job.kind == JobKind::kConversion) return "the data set is converted";
  return job.WorldSize() == 1 ? "ended with exit code 0"
                              : fmt::format("all {} processes ended with exit code 0", job.WorldSize());
}

}  // namespace

std::string StopActor(const Run& run) {
  if (run.stop == StopFor::kPreempt || run.stop == StopFor::kGrow || run.stop == StopFor::kNotice)
    return "scheduler";
  return fmt::format("user:{}", run.stop_actor);
}

ReasonCode StopCode(StopFor stop) {
  switch (stop) {
    case StopFor::kPause:
      return ReasonCode::kPausedByUser;
    case StopFor::kMove:
      return ReasonCode::kMovedByUser;
    case StopFor::kPreempt:
      return ReasonCode::kPreempted;
    case StopFor::kGrow:
      return ReasonCode::kGrows;
    case StopFor::kNotice:
      return ReasonCode::kSpotNotice;
    default:
      return ReasonCode::kNodeDrained;
  }
}

bool MayFollow(JobState from, JobState to) {
  using enum JobState;
  if (from == to) return !IsFinal(from);
  switch (from) {
    case kQueued:
      return to == kStarting || to == kCompleted || to == kCancelled || to == kFailed || to == kPaused;
    case kStarting:
      return to == kRunning || to == kPaused || to == kQueued || to == kCompleted || to == kFailed ||
             to == kCancelled;
    case kRunning:
      return to == kPreempting || to == kPaused || to == kQueued || to == kCompleted || to == kFailed ||
             to == kCancelled;
    case kPreempting:
      return to == kQueued || to == kPaused || to == kCompleted || to == kFailed || to == kCancelled;
    case kPaused:
      return to == kQueued || to == kCompleted || to == kCancelled;
    default:
      return false;
  }
}

std::optional<AppendEvent> ChangeState(JobRecord& job, JobState to, Reason reason, std::string actor,
                                       Now now) {
  if (!MayFollow(job.state, to)) return std::nullopt;
  AppendEvent event{.job = job.id,
                    .generation = job.generation,
                    .from = job.state,
                    .to = to,
                    .reason = reason,
                    .actor = std::move(actor),
                    .time = now.wall};
  job.state = to;
  job.reason = std::move(reason);
  if (IsFinal(to)) job.ended = now.wall;
  // One that is asked back while it begins began before.
  if (to == JobState::kStarting && event.from != to) job.started = now.wall;
  return event;
}

std::optional<AppendEvent> ComeBack(JobRecord& job, std::string text, std::string actor, Now now) {
  if (!job.by_hand || job.state != JobState::kFailed || job.reason.code != ReasonCode::kSilent)
    return std::nullopt;
  AppendEvent event{.job = job.id,
                    .generation = job.generation,
                    .from = job.state,
                    .to = JobState::kRunning,
                    .reason = {ReasonCode::kStartedByHand, std::move(text)},
                    .actor = std::move(actor),
                    .time = now.wall};
  job.state = event.to;
  job.reason = event.reason;
  job.ended = {};
  return event;
}

void BeginRun(JobRecord& job, std::vector<Part> parts, Now now) {
  job.generation = Generation(job.generation.value() + 1);
  job.run = Run{.parts = std::move(parts),
                .avoided = std::move(job.avoid),
                .charged = now.wall,
                .since = now.steady,
                .charged_at = now.steady,
                .kept_since = now.steady,
                .held_since = now.steady};
  if (job.per_node) {
    for (uint32_t i = 0; i < job.run.parts.size(); ++i) {
      job.run.parts[i].first_rank = i;
      job.run.parts[i].ranks = 1;
    }
  }
  job.retry_at = {};
  job.not_before = {};
  job.avoid.clear();
}

const Part* PartOfRank(const Run& run, uint32_t rank) {
  for (const auto& part : run.parts) {
    if (part.Has(rank)) return &part;
  }
  return nullptr;
}

const Part* PartOnNode(const Run& run, const NodeId& node) {
  for (const auto& part : run.parts) {
    if (part.node == node) return &part;
  }
  return nullptr;
}

Part* PartOnNode(Run& run, const NodeId& node) {
  return const_cast<Part*>(PartOnNode(std::as_const(run), node));
}

bool AllOver(const Run& run) {
  return std::all_of(run.parts.begin(), run.parts.end(), [](const Part& part) { return part.Over(); });
}

bool MustStop(const Run& run) {
  return !run.troubles.empty() || std::any_of(run.exits.begin(), run.exits.end(), [](const RankExit& exit) {
    // A node may tell ranks to end for reasons of its own.
    return exit.exit_code != 0 || exit.signal != 0 || exit.told;
  });
}

bool FailedOfItself(const Run& run) {
  return !run.troubles.empty() || std::any_of(run.exits.begin(), run.exits.end(), [](const RankExit& exit) {
    return !exit.by_us && (exit.exit_code != 0 || exit.signal != 0);
  });
}

bool CollectiveBroke(const JobRecord& job) {
  const Run& run = job.run;
  return std::any_of(
             run.exits.begin(), run.exits.end(),
             [&](const RankExit& exit) { return !exit.by_us && IsCollective(job.kind, run, exit); }) ||
         std::any_of(run.failures.begin(), run.failures.end(),
                     [](const RankFailure& failure) { return failure.collective_broken; });
}

bool IsExplained(const JobRecord& job) {
  const Run& run = job.run;
  if (!job.Trains()) return true;
  // It may have trained to its end, which counts whatever was asked of it meanwhile.
  const auto may_have_finished = [](const RankExit& exit) { return exit.rank == 0 && EndedWell(exit); };
  if (!run.finished && std::ranges::any_of(run.exits, may_have_finished)) return false;
  if (run.stop == StopFor::kCancel || run.stop == StopFor::kTimeLimit || run.stop == StopFor::kHalve)
    return true;
  if (GivesBack(run.stop)) {
    // Who says that it stopped as asked has written a checkpoint, and it is said in the end where that is.
    return run.saved || std::none_of(run.exits.begin(), run.exits.end(),
                                     [](const RankExit& exit) { return exit.exit_code == kStoppedExit; });
  }
  if (!run.troubles.empty()) return true;
  return std::all_of(run.exits.begin(), run.exits.end(), [&run](const RankExit& exit) {
    return exit.by_us || SignalOf(exit) != 0 || exit.exit_code == 0 || FailureOf(run, exit.rank) != nullptr;
  });
}

bool EndedByUs(const JobRecord& job, const RankExit& exit, Instant now) {
  if (job.run.stop == StopFor::kNothing) return false;
  // Of what ends after another one failed nobody can tell whether that is why.
  if (!job.Trains()) return exit.told || job.run.stop == StopFor::kRetry;
  const int signal = SignalOf(exit);
  if (signal == kTerm || exit.exit_code == kStoppedExit) return true;
  // A SIGKILL of ours comes only after the grace time; an earlier one is somebody else's. Where a node is
  // taken back there may have been less, and the machine's own end looks the same.
  if (job.run.stop == StopFor::kNotice && signal == kKill) return true;
  return signal == kKill && now >= job.run.stop_since + std::chrono::milliseconds(job.grace_ms);
}

Verdict Judge(const JobRecord& job, uint64_t last_step) {
  const Run& run = job.run;
  if (AllEndedWell(job)) {
    return {JobState::kCompleted, {ReasonCode::kFinished, Finished(job)}, "scheduler", false};
  }
  if (run.stop == StopFor::kCancel) {
    return {JobState::kCancelled,
            {ReasonCode::kCancelledByUser, fmt::format("cancelled by {}", run.stop_actor)},
            fmt::format("user:{}", run.stop_actor),
            false};
  }
  if (run.stop == StopFor::kHalve)
    return {JobState::kCompleted, {ReasonCode::kHalved, run.stop_text}, "scheduler", false};
  if (run.stop == StopFor::kTimeLimit) return TimeIsOver(job, "");
  const Cause cause = FindCause(job.kind, run);
  if (cause.reason.code == ReasonCode::kBadInput)
    return {JobState::kFailed, cause.reason, "scheduler", false};
  if (GivesBack(run.stop)) return GaveBack(job, cause.reason, last_step);
  return Failed(job, cause);
}

void AcceptCheckpoint(JobRecord& job, Checkpoint checkpoint) {
  std::erase_if(job.checkpoints, [&](const Checkpoint& known) { return known.path == checkpoint.path; });
  job.checkpoints.insert(job.checkpoints.begin(), std::move(checkpoint));
  if (job.checkpoints.size() > JobRecord::kCheckpointsKept) {
    job.checkpoints.resize(JobRecord::kCheckpointsKept);
  }
  job.run.progressed = true;
  if (job.run.stop != StopFor::kNothing) job.run.saved = true;
}

HeldDevices HeldBy(const JobRecord& job, const std::function<const NodeRecord*(const NodeId&)>& find) {
  HeldDevices held;
  for (const auto& part : job.run.Held()) {
    const NodeRecord* node = find(part.node);
    const size_t devices = node != nullptr && part.whole ? node->devices.size() : part.devices.size();
    held.devices += static_cast<uint32_t>(devices);
    if (node == nullptr || node->devices.empty()) continue;
    const double share = static_cast<double>(devices) / static_cast<double>(node->devices.size());
    held.price_per_hour += node->price_per_hour * std::min(share, 1.0);
  }
  return held;
}

}  // namespace imgd
