#include "trainer/data/planner.h"

#include <algorithm>

#include "trainer/data/shapes.h"

namespace imgd::data {
namespace {

/// A rank's slice and, where it begins or ends between two partners, the one beside it.
Slice WithPartners(Slice own, uint32_t count) {
  if (own.first == own.last) return own;
  return {own.first & ~1U, std::min((own.last + 1) & ~1U, count)};
}

}  // namespace

Status CheckOptions(const LoaderOptions& options) {
  const auto at_least = [](const char* name, int value, int least) -> Status {
    if (value >= least) return {};
    return Fail(ErrorCode::kInvalidArgument, "{} is {}, which must be at least {}", name, value, least);
  };
  IMGD_TRY(at_least("crop_size", options.crop_size, 1));
  IMGD_TRY(at_least("global_batch", options.global_batch, 1));
  IMGD_TRY(at_least("segments", options.segments, 1));
  IMGD_TRY(at_least("world_size", options.world_size, 1));
  IMGD_TRY(at_least("workers", options.workers, 1));
  IMGD_TRY(at_least("prefetch", options.prefetch, 1));
  if (!options.training) IMGD_TRY(at_least("resize", options.resize, options.crop_size));
  if (options.rank < 0 || options.rank >= options.world_size) {
    return Fail(ErrorCode::kInvalidArgument, "rank is {}, which must be from 0 to {}", options.rank,
                options.world_size - 1);
  }
  if (options.training && options.start_step < options.first_step) {
    return Fail(ErrorCode::kInvalidArgument, "start_step is {}, before the first step, {}",
                options.start_step, options.first_step);
  }
  return {};
}

Planner::Planner(const LoaderOptions& options, const Dataset& dataset)
    : options_(options),
      dataset_(dataset),
      samples_(static_cast<uint32_t>(dataset.size())),
      steps_per_epoch_(StepsPerEpoch(dataset.size(), options.global_batch)) {}

uint64_t Planner::MaxBatchBytes() const {
  const auto batch = static_cast<uint64_t>(options_.global_batch);
  const auto world = static_cast<uint64_t>(std::max(options_.world_size, 1));
  const uint64_t images = (batch + world - 1) / world + (options_.partners ? 2 : 0);
  const auto side = static_cast<uint64_t>(options_.crop_size);
  return images * side * side * 3 * (options_.shapes != nullptr ? kMaxElongation : 1);
}

Result<Plan> Planner::Make(uint64_t step) {
  if (!options_.training) return MakeValidation(step);
  return MakeTraining(step);
}

Result<Plan> Planner::MakeTraining(uint64_t step) {
  const uint64_t since = step - options_.first_step;
  Plan plan{.step = step,
            .epoch = static_cast<uint32_t>(options_.first_epoch + since / steps_per_epoch_),
            .width = options_.crop_size,
            .height = options_.crop_size};
  const uint64_t step_of_epoch = since % steps_per_epoch_;
  if (!order_ || order_epoch_ != plan.epoch) {
    IMGD_ASSIGN(order_, EpochOrder::Create({.seed = options_.seed,
                                            .epoch = plan.epoch,
                                            .samples = samples_,
                                            .global_batch = options_.global_batch,
                                            .segments = options_.segments,
                                            .shards = dataset_.shard_sizes(),
                                            .mode = options_.epoch_mode,
                                            .first_step = step - step_of_epoch}));
    order_epoch_ = plan.epoch;
  }
  const uint32_t count = order_->StepSize(step_of_epoch);
  const Slice own = RankSlice(count, options_.rank, options_.world_size);
  const Slice all = options_.partners ? WithPartners(own, count) : own;
  plan.global_count = static_cast<int>(count);
  plan.first_position = all.first;
  plan.own = {own.first - all.first, own.last - all.first};
  plan.samples = order_->Samples(step_of_epoch, all);
  return plan;
}

Plan Planner::MakeValidation(uint64_t step) const {
  const auto batch = static_cast<uint64_t>(options_.global_batch);
  const uint64_t start = step * batch;
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch, samples_ - start));
  const Slice slice = RankSlice(count, options_.rank, options_.world_size);
  Plan plan{.step = step,
            .global_count = static_cast<int>(count),
            .width = options_.crop_size,
            .height = options_.crop_size,
            .first_position = slice.first,
            .own = {0, slice.last - slice.first}};
  for (uint64_t i = start + slice.first; i < start + slice.last; ++i) {
    plan.samples.push_back(options_.shapes ? options_.shapes->order[i] : static_cast<uint32_t>(i));
  }
  if (options_.shapes) {
    plan.width = options_.shapes->batches[step].width;
    plan.height = options_.shapes->batches[step].height;
  }
  return plan;
}

}  // namespace imgd::data
