#include "common/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace imgd {
namespace {

/// 1 at 0, 0 at 1.
double HalfCosine(double done) { return (1 + std::cos(std::numbers::pi * done)) / 2; }

}  // namespace

Schedule::Schedule(const JobSpec& spec, const Phases& phases)
    : settings_(spec.schedule),
      base_(spec.optimizer.lr),
      warmup_steps_(static_cast<double>(phases.Steps(spec.schedule.warmup_epochs))),
      total_steps_(static_cast<double>(phases.total_steps())) {
  // Without a start of its own the first step has as much as each step adds, so that it is not lost.
  start_ = base_ * settings_.warmup_start.value_or(1.0 / (warmup_steps_ + 1));
  for (const double epochs : settings_.milestones)
    milestones_.push_back(static_cast<double>(phases.Steps(epochs)));
  const auto asked = spec.AllPhases();
  for (size_t i = 0; i < asked.size() && asked[i].lr; ++i) {
    const Phase& phase = phases.all()[i];
    lines_.push_back({static_cast<double>(phase.first_step), static_cast<double>(phase.end_step),
                      *asked[i].lr, asked[i].lr_end.value_or(*asked[i].lr)});
  }
}

double Schedule::LearningRate(double step) const {
  if (step >= total_steps_) return 0;
  for (const Line& line : lines_) {
    if (step >= line.end_step) continue;
    const double done = (step - line.first_step) / (line.end_step - line.first_step);
    return line.from + (line.to - line.from) * done;
  }
  const bool one_cycle = settings_.kind == "one_cycle";
  if (step < warmup_steps_) {
    const double done = step / warmup_steps_;
    return start_ + (base_ - start_) * (one_cycle ? 1 - HalfCosine(done) : done);
  }
  if (settings_.kind == "step") {
    const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step) - milestones_.begin();
    return base_ * std::pow(settings_.gamma, static_cast<double>(passed));
  }
  const double done = (step - warmup_steps_) / (total_steps_ - warmup_steps_);
  const double left = settings_.kind == "polynomial" ? std::pow(1 - done, settings_.power) : HalfCosine(done);
  return settings_.end_lr + (base_ - settings_.end_lr) * left;
}

}  // namespace imgd
