#include "common/phases.h"

#include <algorithm>
#include <cmath>

namespace imgd {

Phases::Phases(const JobSpec& spec, uint64_t images) {
  uint64_t epoch = 0;
  uint64_t step = 0;
  for (const auto& from : spec.AllPhases()) {
    Phase phase{.first_epoch = epoch,
                .end_epoch = static_cast<uint64_t>(from.until),
                .first_step = step,
                .image_size = from.image_size,
                .global_batch = from.global_batch,
                .min_scale = from.min_scale,
                .train = from.train};
    const auto batch = static_cast<uint64_t>(from.global_batch);
    phase.steps_per_epoch = std::max<uint64_t>((images + batch - 1) / batch, 1);
    phase.end_step = step + (phase.end_epoch - phase.first_epoch) * phase.steps_per_epoch;
    epoch = phase.end_epoch;
    step = phase.end_step;
    phases_.push_back(std::move(phase));
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

}  // namespace imgd
