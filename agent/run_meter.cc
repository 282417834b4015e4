#include "agent/run_meter.h"

#include <algorithm>
#include <cmath>

namespace imgd {
namespace {

constexpr size_t kMeterBatchBytes = 256 << 10;

/// A sum that only grows, even if a report is not what it should be.
void Grow(double& total, double amount) {
  if (std::isfinite(amount) && amount > 0) total += amount;
}

}  // namespace

void AddReport(const v1::StepMetrics& report, RankFigures& rank) {
  const auto& loader = report.loader();
  // Both are of the same stretch of time, so that this is the whole number that the trainer made the speed
  // of.
  Grow(rank.images, std::round(report.rank_images_per_second() * loader.interval_seconds()));
  Grow(rank.loader_images, static_cast<double>(loader.images()));
  Grow(rank.loader_bytes, static_cast<double>(loader.bytes()));
  Grow(rank.read_seconds, loader.read_seconds());
  Grow(rank.decode_seconds, loader.decode_seconds());
  Grow(rank.augment_seconds, loader.augment_seconds());
  Grow(rank.idle_seconds, loader.idle_seconds());
  Grow(rank.wait_seconds, loader.wait_seconds());
  const auto& times = report.times();
  Grow(rank.step_input_seconds, times.input_seconds());
  Grow(rank.forward_seconds, times.forward_seconds());
  Grow(rank.backward_seconds, times.backward_seconds());
  Grow(rank.communication_seconds, times.communication_seconds());
  Grow(rank.optimizer_seconds, times.optimizer_seconds());
  Grow(rank.h2d_seconds, times.h2d_seconds());
  rank.has_step = true;
  rank.step = report.step();
  rank.loss = report.loss();
  rank.epoch = report.epoch();
  rank.top1 = report.top1();
  rank.learning_rate = report.learning_rate();
  rank.eta_seconds = report.eta_seconds();
  rank.images_per_second = report.rank_images_per_second();
  rank.spread = report.ranks();
}

void TakeEvent(const v1::TrainerEvent& event, RankFigures& rank) {
  if (event.has_step()) AddReport(event.step(), rank);
  if (event.has_epoch()) rank.validation = {event.epoch().val_loss(), event.epoch().val_top1()};
  if (event.has_checkpoint()) {
    rank.checkpoint = {static_cast<double>(event.time_us()) / 1e6,
                       static_cast<double>(event.checkpoint().size_bytes()),
                       event.checkpoint().write_seconds()};
  }
}

RunMeter::RunMeter(const RunDir& dir, uint32_t ranks) : figures_(ranks) {
  followers_.reserve(ranks);
  for (uint32_t i = 0; i < ranks; ++i) followers_.emplace_back(dir, i, /*quiet=*/true);
}

bool RunMeter::Read(size_t most_bytes) {
  bool all_read = true;
  for (size_t i = 0; i < followers_.size(); ++i) {
    bool at_end = false;
    for (size_t taken = 0; taken < most_bytes && !at_end; taken += kMeterBatchBytes) {
      v1::TrainerEvents batch;
      followers_[i].Read(std::min(kMeterBatchBytes, most_bytes - taken), &batch);
      for (const auto& event : batch.events()) {
        TakeEvent(event, figures_[i]);
      }
      at_end = !followers_[i].more();
    }
    all_read = all_read && at_end;
  }
  is_complete_ = is_complete_ || all_read;
  return all_read;
}

}  // namespace imgd
