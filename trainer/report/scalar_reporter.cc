#include "trainer/report/scalar_reporter.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace imgd::report {
namespace {

class ScalarReporter final : public Reporter {
 public:
  ScalarReporter(std::unique_ptr<ScalarLog> log, std::function<void(const std::string&)> note)
      : note_(std::move(note)), log_(std::move(log)) {}

  void On(const Started& x) override {
    const std::lock_guard lock(mutex_);
    log_->StartAfter(x.start_step);
  }
  void On(const StepFigures& x) override { Add(ScalarsOf(x)); }
  void On(const EpochFigures& x) override { Add(ScalarsOf(x)); }
  void On(const SampleFigures& x) override { Add(x); }
  void On(const ClassFigures& x) override { Add(x); }
  void On(const CheckpointFigures&) override {}
  void On(const Finished&) override { Flush(); }
  void On(const Failed&) override { Flush(); }
  void On(const BadImage&) override {}
  void Note(const std::string&) override {}

 private:
  template <typename T>
  void Add(const T& figures) {
    const std::lock_guard lock(mutex_);
    Check(log_->Add(figures));
  }

  void Flush() {
    const std::lock_guard lock(mutex_);
    Check(log_->Flush());
  }

  void Check(const Status& written) {
    if (written || noted_) return;
    noted_ = true;
    note_(fmt::format("figures are not written: {}; the run goes on, and each report tries again",
                      written.error().ToString()));
  }

  const std::function<void(const std::string&)> note_;
  std::mutex mutex_;  ///< guards all below
  std::unique_ptr<ScalarLog> log_;
  bool noted_ = false;
};

/// Of a step, in seconds; what only several ranks have is left out with one.
void AddTimes(const StepFigures& x, std::vector<Scalar>& scalars) {
  const double steps = std::max(x.times.steps, 1U);
  scalars.insert(scalars.end(), {{"time/input", x.times.input_seconds / steps},
                                 {"time/forward", x.times.forward_seconds / steps},
                                 {"time/backward", x.times.backward_seconds / steps},
                                 {"time/communication", x.times.communication_seconds / steps},
                                 {"time/optimizer", x.times.optimizer_seconds / steps}});
  if (x.ranks.ranks == 0) return;
  scalars.insert(scalars.end(), {{"time/all_reduce", x.times.all_reduce_seconds},
                                 {"time/all_reduce_hidden", x.times.all_reduce_hidden_ratio},
                                 {"ranks/own_least", x.ranks.own_least},
                                 {"ranks/own_mean", x.ranks.own_mean},
                                 {"ranks/own_most", x.ranks.own_most},
                                 {"ranks/wait_mean", x.ranks.wait_mean},
                                 {"ranks/slowest", static_cast<double>(x.ranks.slowest_rank)}});
}

}  // namespace

ScalarGroup ScalarsOf(const StepFigures& x) {
  ScalarGroup group{.step = x.step,
                    .epoch = x.epoch,
                    .scalars = {{"train/loss", x.loss},
                                {"train/final_loss", x.loss + x.penalty},
                                {"train/top1", x.top1},
                                {"train/learning_rate", x.learning_rate},
                                {"train/gradient_norm", x.gradient_norm},
                                {"train/images_per_second", x.images_per_second},
                                {"train/rank_images_per_second", x.rank_images_per_second},
                                {"train/input_wait", x.input_wait_ratio}}};
  AddTimes(x, group.scalars);
  return group;
}

ScalarGroup ScalarsOf(const EpochFigures& x) {
  return {.step = x.step,
          .epoch = static_cast<double>(x.epoch),
          .scalars = {{"val/loss", x.val_loss}, {"val/top1", x.val_top1}, {"val/top5", x.val_top5}}};
}

std::unique_ptr<Reporter> MakeScalarReporter(std::unique_ptr<ScalarLog> log,
                                             std::function<void(const std::string&)> note) {
  return std::make_unique<ScalarReporter>(std::move(log), std::move(note));
}

}  // namespace imgd::report
