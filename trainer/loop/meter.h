#pragma once

#include <cstdint>

#include "common/clock.h"
#include "common/phases.h"

namespace imgd::trainer {

/// Sums of a stretch of training, over one rank or all.
struct Sums {
  double loss = 0;  ///< summed over images
  double correct = 0;
  double images = 0;
};

/// Speed of training between two reports. Used by one thread.
class Meter {
 public:
  /// What Report() answers.
  struct Figures {
    double rank_images_per_second = 0;
    double images_per_second = 0;
    double input_wait_ratio = 0;  ///< 0 to 1
    double eta_seconds = 0;
    double seconds = 0;  ///< length of the stretch, without pauses
    double input_wait_seconds = 0;
  };

  explicit Meter(Instant now) : since_(now) {}

  /// Time that the loop stood still for input.
  void AddInputWait(Duration wait) { waited_ += wait; }
  /// Time that belongs to no step (validation, checkpoints): speeds leave it out.
  void AddPause(Duration pause) { paused_ += pause; }
  void NoteValidation(Duration took) { validation_ = took; }
  /// Training goes on from here: what was before it is of no stretch.
  void GoOn(Instant now) { since_ = now; }
  void AddStep(int64_t images) {
    images_ += images;
    ++steps_;
  }

  /// Of this rank since the last report.
  int64_t images() const { return images_; }
  Duration SinceReport(Instant now) const { return now - since_; }

  /// Figures since the last call; `all_images` is the gang's count of the stretch. The time that is left is
  /// that of recent steps: what was a minute ago counts half. The first stretch counts until there is
  /// another. With it goes that of the validations that are left, each as long as the last.
  Figures Report(Instant now, double all_images, uint64_t steps_left, uint64_t validations_left = 0);

 private:
  Instant since_;
  Duration waited_{0};
  Duration paused_{0};
  int64_t images_ = 0;
  uint64_t steps_ = 0;
  uint64_t reports_ = 0;  ///< of stretches with a step
  double recent_seconds_ = 0;
  double recent_steps_ = 0;
  Duration validation_{0};
};

/// How many validations are to come when `step` of `total_steps` steps are done, that of this moment
/// included: one after each `every_epochs` epochs, and one at the end.
uint64_t ValidationsLeft(const Phases& phases, uint64_t step, uint64_t total_steps, int every_epochs);

}  // namespace imgd::trainer
