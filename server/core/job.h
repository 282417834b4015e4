#pragma once

#include <functional>
#include <optional>
#include <string>

#include "server/core/actions.h"
#include "server/core/types.h"

/// The state machine of one job: pure functions on its record. What a cluster of them does is the reactor's.
namespace imgd {

/// True for the changes that design and documents allow; a state may follow itself where only the reason
/// changes.
bool MayFollow(JobState from, JobState to);

/// Puts the job into a state and returns the row of its history that says so.
/// A forbidden change leaves the job as it is and returns nothing.
std::optional<AppendEvent> ChangeState(JobRecord& job, JobState to, Reason reason, std::string actor,
                                       Now now);

/// A run started by hand that was given up for its silence has been heard again: RUNNING once more. Returns
/// nothing, and changes nothing, for any other job.
std::optional<AppendEvent> ComeBack(JobRecord& job, std::string text, std::string actor, Now now);

/// Gives the job a new generation and the run that goes with it. Call before ChangeState(kStarting).
void BeginRun(JobRecord& job, std::vector<Part> parts, Now now);

/// The part that holds a rank; null when there is none.
const Part* PartOfRank(const Run& run, uint32_t rank);
const Part* PartOnNode(const Run& run, const NodeId& node);
Part* PartOnNode(Run& run, const NodeId& node);

/// True when no process of the run is left that the daemon would wait for.
bool AllOver(const Run& run);

/// True when a rank's end, or something else, means that the whole gang has to end.
bool MustStop(const Run& run);

/// True when the run's collectives broke, which is what ranks see when another one's node has gone.
bool CollectiveBroke(const JobRecord& job);

/// True when every end is explained, so that waiting for more reports would not change the verdict.
bool IsExplained(const JobRecord& job);

/// True when the run fell apart, and not because it was asked to end.
bool FailedOfItself(const Run& run);

/// Marks whether imgd itself ended this rank, by what was asked for before.
bool EndedByUs(const JobRecord& job, const RankExit& exit, Instant now);

/// Who asked for the devices of a run that GivesBack(), as in AppendEvent, and the code of it.
std::string StopActor(const Run& run);
ReasonCode StopCode(StopFor stop);

/// What becomes of a job whose run is over.
struct Verdict {
  JobState to = JobState::kQueued;
  Reason reason;
  std::string actor;
  bool counts = false;                  ///< as a failure of the job itself, against max_restarts
  std::optional<Crashes> crashes = {};  ///< of a failed run: the job's, with this one
  NodeId node = {};                     ///< that the cause may be the fault of; an empty name for none
  std::optional<LogMatch> match = {};   ///< of the cause's log
  bool doubted = false;                 ///< what the job's log says of nodes is believed no more
};

/// Judges a run that is over. `last_step` is the last one that its ranks were seen at; 0 where nobody knows.
/// The cause named is the rank that was killed, else one that failed by itself, and one whose collective
/// broke only when there is no other: that is a consequence. What is not the job's own fault (a lost node, a
/// broken collective, a log pattern that says so) does not count against max_restarts; three crashes running
/// in one place without progress end the job, whatever max_restarts is.
Verdict Judge(const JobRecord& job, uint64_t last_step = 0);

/// Ends in a row that do not count, without progress, after which it is given up all the same: nobody wants a
/// job to hold its devices over and over for nothing.
inline constexpr uint32_t kMostWithoutProgress = 20;

/// A command that ran for so long has got somewhere: what it fails of then does not add up with what it
/// failed of before.
inline constexpr Duration kRanForLong = std::chrono::minutes(10);

/// One whose time is over, or that is cancelled after a checkpoint, may write that last one for so long at
/// least.
inline constexpr Duration kTimeForCheckpoint = std::chrono::minutes(2);

/// That the ranks have for a checkpoint before they are ended. Where they are to go on later nothing shall be
/// lost for the sake of a minute.
int64_t GraceForCheckpoint(const JobRecord& job);

/// The same where there is only so much time for all of it, milliseconds: the ranks may take as long again to
/// end, and some seconds are left for what they report.
int64_t GraceWithin(int64_t grace_ms, Duration left);

/// Of a last one, from the stop on that asks for it. Somebody who cancels a job waits for its grace time,
/// where that is longer.
Duration TimeForLastCheckpoint(const JobRecord& job);

/// Of a record as it is stored: since when the job has held its devices, from when on that is not counted
/// yet, and what of it is in no checkpoint.
void RestoreHeld(JobRecord& job, Now now);

/// That a run that is asked to stop takes at most.
Duration TimeToStop(const JobRecord& job);

/// What is left of the job's time limit in its present start; nothing without a limit.
std::optional<Duration> TimeLeft(const JobRecord& job, Instant now);

/// That the present start takes at most, or that a queued job's next one will, ending included; nothing
/// without a limit.
std::optional<Duration> LongestStart(const JobRecord& job);

/// How many starts running have failed without progress, when the present one has.
uint32_t FailuresInRow(const JobRecord& job);

/// Time before the retry after so many failures in a row: 1 s, doubling to 60 s.
Duration BackoffAfter(uint32_t failures_in_row);

/// True where a job whose state has this reason may keep off nodes for its next start, as long as others are
/// free: it waits for its retry, or was paused meanwhile.
bool TriesElsewhere(ReasonCode reason);

/// True when a job that waits for its retry keeps its place in the queue: one that gave its devices back
/// does, and one that failed where that wait is up to 30 s. One that has failed so often that it waits longer
/// must not leave devices idle again and again.
bool KeepsPlace(const JobRecord& job);
/// So many times in a row make the longest wait that KeepsPlace().
inline constexpr uint32_t kLongestInPlace = 5;

/// Takes the checkpoint as the newest accepted one.
void AcceptCheckpoint(JobRecord& job, Checkpoint checkpoint);

/// What a job holds: its devices, which are more than its ranks where it has nodes for itself, and of each
/// node's price the part of its devices. `find`: a node's record; null for one that is not known.
struct HeldDevices {
  uint32_t devices = 0;
  double price_per_hour = 0;
};
HeldDevices HeldBy(const JobRecord& job, const std::function<const NodeRecord*(const NodeId&)>& find);

}  // namespace imgd
