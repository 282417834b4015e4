#pragma once

#include <optional>

#include "trainer/data/trace.h"
#include "trainer/input/feed.h"
#include "trainer/loop/guard.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/meter.h"
#include "trainer/loop/profile.h"
#include "trainer/loop/run.h"
#include "trainer/loop/session.h"
#include "trainer/loop/step_clock.h"

namespace imgd::trainer {

/// Trains a session to its end. What ranks must do together (stop, save, report) is agreed on in each step by
/// one small sum that travels while the forward pass runs: it carries each rank's image count and wishes.
class TrainLoop {
 public:
  explicit TrainLoop(Session& session);

  /// Errors: as RunTraining(); throws what LibTorch throws, and CollectiveError.
  Result<RunEnd> Run();

 private:
  /// What all ranks agreed on for a step.
  struct Agreed {
    int64_t images = 0;  ///< of all ranks
    Commands::Taken asked;
    bool report = false;
  };

  Result<bool> RunPhase(const Phase& phase);
  Result<Agreed> Step(Feed& feed);
  Result<std::optional<DeviceBatch>> NextBatch(Feed& feed);
  Status Trace(const DeviceBatch& batch);
  report::TimeFigures TakeTimes();
  report::LoaderFigures LoaderFiguresSince(const Meter::Figures& speed);
  Gang::PendingSum StartAgreement(int64_t images);
  Agreed FinishAgreement(Gang::PendingSum pending) const;
  void NoteImagesLeftToCpu();
  Status Report();
  Result<bool> AfterStep(const Agreed& agreed);
  Result<bool> ValidateAndObey();
  bool ValidationDue() const;
  void KeepValidation();
  Status EndEarly();
  Status Save();
  Status FinishSaving();
  Status CheckThatSomethingWasSeen() const;

  Session& session_;
  const uint64_t first_step_;  ///< of this start
  int warm_steps_ = 0;         ///< of the current phase in this start, as far as they matter
  Meter meter_;
  StepClock clock_;
  Learner learner_;
  Guard guard_;
  StepProfiler profiler_;
  double learning_rate_ = 0;
  bool enough_ = false;       ///< early_stop ends the run
  uint64_t good_images_ = 0;  ///< of all ranks, since this start
  std::optional<uint64_t> saved_step_;
  std::optional<Feed> feed_;      ///< of the current phase
  data::LoaderFigures reported_;  ///< of it, that were reported
  double reported_h2d_ = 0;       ///< likewise
  data::LoaderFigures noted_;     ///< of it, as of the last note on images that were left to the CPU
  std::optional<data::SampleTrace> trace_;
};

}  // namespace imgd::trainer
