#include "common/phases.h"

#include <algorithm>
#include <cmath>

namespace imgd {

namespace {

uint64_t StepsPerEpoch(uint64_t images, int global_batch) {
  const auto batch = static_cast<uint64_t>(global_batch);
  return std::max<uint64_t>((images + batch - 1) / batch, 1);
}

}  // namespace

Phases::Phases(const JobSpec& spec, uint64_t images, const std::vector<Resize>& resizes) {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint64_t planned = 0;
  int ranks = spec.elastic.ranks;
  auto resize = resizes.begin();
  const auto asked = spec.AllPhases();
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& from = asked[i];
    const auto until = static_cast<uint64_t>(from.until);
    while (epoch < until) {
      for (; resize != resizes.end() && resize->epoch <= epoch; ++resize) ranks = resize->ranks;
      Phase phase{.number = i,
                  .first_epoch = epoch,
                  .end_epoch = resize == resizes.end() ? until : std::min(until, resize->epoch),
                  .first_step = step,
                  .image_size = from.image_size,
                  .global_batch = static_cast<int>(int64_t{from.global_batch} * ranks / spec.elastic.ranks),
                  .min_scale = from.min_scale,
                  .train = from.train,
                  .ranks = ranks,
                  .planned_first_step = planned,
                  .planned_steps_per_epoch = StepsPerEpoch(images, from.global_batch)};
      phase.steps_per_epoch = StepsPerEpoch(images, phase.global_batch);
      const uint64_t epochs = phase.end_epoch - epoch;
      phase.end_step = step += epochs * phase.steps_per_epoch;
      planned += epochs * phase.planned_steps_per_epoch;
      epoch = phase.end_epoch;
      phases_.push_back(std::move(phase));
    }
  }
}

const Phase& Phases::At(uint64_t step) const {
  for (const auto& phase : phases_) {
    if (step < phase.end_step) return phase;
  }
  return phases_.back();
}

double Phases::Epochs(uint64_t steps) const {
  const Phase& phase = At(steps);
  return static_cast<double>(phase.first_epoch) +
         static_cast<double>(steps - phase.first_step) / static_cast<double>(phase.steps_per_epoch);
}

std::optional<uint64_t> Phases::WholeEpochs(uint64_t steps) const {
  const Phase& phase = At(steps);
  const uint64_t since = steps - phase.first_step;
  if (since % phase.steps_per_epoch != 0) return std::nullopt;
  return phase.first_epoch + since / phase.steps_per_epoch;
}

uint64_t Phases::Steps(double epochs) const {
  for (const auto& phase : phases_) {
    if (epochs > static_cast<double>(phase.end_epoch)) continue;
    const double since = std::max(epochs - static_cast<double>(phase.first_epoch), 0.0);
    return phase.first_step +
           static_cast<uint64_t>(std::llround(since * static_cast<double>(phase.steps_per_epoch)));
  }
  return total_steps();
}

double Phases::PlannedSteps(uint64_t steps) const {
  const Phase& phase = At(steps);
  const auto since = static_cast<double>(steps - phase.first_step);
  return static_cast<double>(phase.planned_first_step) +
         since * static_cast<double>(phase.planned_steps_per_epoch) /
             static_cast<double>(phase.steps_per_epoch);
}

int PartsOfStep(const JobSpec& spec, const Phase& phase, int ranks) {
  const int64_t parts = spec.train.accumulate;
  if (spec.elastic.rule.empty()) return static_cast<int>(parts);
  return static_cast<int>((parts * phase.ranks + ranks - 1) / ranks);
}

}  // namespace imgd
