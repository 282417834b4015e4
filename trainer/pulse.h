#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/job_file.h"
#include "common/pulse.h"

namespace imgd::trainer {

/// Kinds of work that may take so long, each with a limit of its own.
enum class Activity { kStart, kAutotune, kStep, kInput, kValidation, kCheckpoint };

/// The middle one of the latest times of something; zero before the first.
class RunningMedian {
 public:
  void Add(std::chrono::milliseconds time);
  std::chrono::milliseconds median() const { return median_; }

 private:
  static constexpr size_t kKept = 31;
  std::vector<std::chrono::milliseconds> times_;  ///< the latest, as a ring
  size_t next_ = 0;
  std::chrono::milliseconds median_{0};
};

/// The rank's sign of life. A thread of its own beats twice a second, whatever the others do; the training
/// thread says where it is, and what that may take. With a run directory both go to `pulse.<local_rank>`
/// there, which the agent reads and imgd judges.
class Pulse {
 public:
  explicit Pulse(const JobSpec::Limits& limits);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// Writes to the run's folder from now on. Errors: as PulseFile::Create.
  Status WriteTo(const std::filesystem::path& run_dir, int local_rank);

  /// The training thread came a bit further: `what` it does now, a literal. Only it may call this and the
  /// next three.
  void SetPosition(uint64_t step, const char* what);
  /// What it does while nothing of During is in scope. The times of steps before kAutotune are forgotten.
  void SetActivity(Activity activity);
  /// A step was done.
  void AddStep(std::chrono::milliseconds time);
  /// Something that takes a while of its own: the larger of the limits holds until it goes out of scope.
  class During {
   public:
    During(Pulse& pulse, Activity activity);
    ~During();
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    Pulse& pulse_;
    std::optional<Activity> before_;
  };

  /// Asks `count` for the collectives that were begun, at each new position, and on the beating thread only
  /// while the training thread stands still. Null for none.
  void CountCollectivesBy(std::function<uint64_t()> count);

  /// It asks this address to be let in, and has no answer yet: PulseState::unanswered while it stands still.
  /// Empty: nobody. Only the training thread may call this.
  void SetConnecting(std::string address);

  /// As it is now; any thread.
  PulseState State() const;

 private:
  void Beat();
  void UpdateLimit();  ///< needs mutex_
  uint64_t LimitOf(Activity activity) const;

  const JobSpec::Limits limits_;
  mutable std::mutex mutex_;  ///< guards all but thread_
  std::condition_variable stopped_;
  bool stop_ = false;
  PulseState state_;
  std::optional<PulseFile> file_;
  Activity activity_ = Activity::kStart;
  std::optional<Activity> during_;
  RunningMedian step_times_;
  std::function<uint64_t()> count_;
  std::string connecting_;
  uint64_t moves_at_last_beat_ = 0;
  int still_beats_ = 0;
  std::thread thread_;
};

}  // namespace imgd::trainer
