#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/sweep.h"
#include "server/core/types.h"

/// What keeps a job from starting though devices may be free: jobs that it comes after, a time that has not
/// come, places in its sweep.
namespace imgd {

/// COMPLETED is ok, FAILED is failed, CANCELLED is neither; any of them is any.
bool Fulfils(AfterEnd when, JobState ended);
/// It has ended, and not as it had to: what comes after it never starts.
bool IsBroken(const Dependency& dependency);

/// So many waits the jobs of a sweep may have together: each end is told to all of them at once.
inline constexpr size_t kMostWaits = 100'000;

/// "2026-11-22 23:01:07 UTC".
std::string UtcText(WallTime time);

/// Why such a job waits: "waits for job 12 (rn50-pre) to complete". `sweep` may be null.
Reason ExplainHeldBack(const JobRecord& job, const SweepRecord* sweep);
/// Of a job of which a dependency is broken: "job 12 (rn50-pre) ended as FAILED, and this one was to start
/// only if it completed".
std::string ExplainBroken(const JobRecord& job);

/// Jobs that are QUEUED and must not start yet, whatever is free. They are not in the scheduler's queue, so
/// that a plan costs nothing for them; they are found by what they wait for.
class HeldBack {
 public:
  /// Forgets all.
  void Clear();
  /// Call before its members come.
  void AddSweep(const SweepRecord& sweep);
  /// Brings it in line with the job's state. True where the job may be in the queue.
  bool Update(const JobRecord& job);
  /// The next member of this sweep, by priority and number, for which there is a place: it may be in the
  /// queue from now on. JobId() for none.
  JobId Admit(JobId sweep);
  /// Some member of the sweep has not ended.
  bool IsOpen(JobId sweep) const;
  void DropSweep(JobId sweep) { sweeps_.erase(sweep); }

  /// Jobs that wait for the end of this one.
  const std::set<JobId>& After(JobId job) const;
  /// The same, once it has ended: they are to be told, and wait for it no longer.
  std::set<JobId> TakeAfter(JobId job);
  /// Jobs whose time has come, by that time; to be told by Update() once their record says so.
  std::vector<JobId> Due(WallTime now) const;

 private:
  struct Places {
    uint32_t most = 0;           ///< 0: any number
    std::set<JobId> open;        ///< that have not ended
    std::set<JobId> in;          ///< that are in the queue or run
    std::map<JobId, int> waits;  ///< for a place, with their priorities
  };
  void UpdateAfter(const JobRecord& job, bool waits);
  void ForgetTime(JobId job);
  void UpdatePlaces(const JobRecord& job, Places& places);

  std::map<JobId, std::set<JobId>> after_;  ///< by the job that they wait for
  std::set<JobId> waiting_;                 ///< those that wait
  std::map<JobId, WallTime> times_;         ///< by the job that waits
  std::set<std::pair<WallTime, JobId>> timed_;
  std::map<JobId, Places> sweeps_;
};

}  // namespace imgd
