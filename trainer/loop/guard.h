#pragma once

#include "trainer/loop/learner.h"
#include "trainer/loop/session.h"

namespace imgd::trainer {

/// Whether a training loss is that of a run that has gone wrong: no finite number, or (`factor` above 0) more
/// than so many times the running mean. Else it is taken up into the mean, of which each look is a tenth.
bool HasDiverged(double loss, double factor, GuardState& state);

/// Looks after a run's loss as the job's `guard` says, after the same steps however often the run is cut.
class Guard {
 public:
  /// Both must outlive it.
  Guard(Session& session, Learner& learner);

  /// Whether it is time to look: also before each checkpoint that the job file asks for.
  bool Due() const;

  /// Looks at the loss since the last look, and rolls back where that is needed; all ranks call it after the
  /// same step. Errors: kInvalidArgument where the run must stop.
  Status Look();

  /// Rolls back because of what is wrong, in words; all ranks call it after the same step. Errors:
  /// kInvalidArgument where it went back too often, or there is nothing to go back to.
  Status GoBack(const std::string& wrong);

  /// Puts what a look would see into the session's state, for a checkpoint; all ranks call it.
  void Keep();

 private:
  Status LookAtSkipped(int64_t skipped);

  Session& session_;
  Learner& learner_;
};

/// Takes up the last validation result for early_stop, once. Whether the run is to end.
bool EnoughIsEnough(const JobSpec::EarlyStop& settings, RunState& state);

/// Why it ends then, for people: "the last 3 validation passes were no better than that of step 500, whose
/// top1 was 0.7612".
std::string WhyEnough(const JobSpec::EarlyStop& settings, const BestSoFar& best);

}  // namespace imgd::trainer
