#include "tests/sim/shape.h"

#include <fmt/format.h>

namespace imgd::sim {

using std::chrono::minutes;
using std::chrono::seconds;

namespace {

int64_t MillisecondsOf(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

void Small(Dice&, const Shape&, JobTruth& job) {
  job.submission.nodes = 1;
  job.submission.ranks_per_node = 1;
}

void Gang(Dice& dice, const Shape& shape, JobTruth& job) {
  job.submission.nodes = static_cast<uint32_t>(1 + dice.Below(std::min(shape.nodes, 16U)));
  job.submission.ranks_per_node = static_cast<uint32_t>(1 + dice.Below(shape.most_devices));
}

void Limited(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(2));
}

void Overlong(Dice& dice, const Shape& shape, JobTruth& job) {
  Limited(dice, shape, job);
  job.submission.time_limit_ms = MillisecondsOf(job.work / 2 + seconds(20));
}

void Crashing(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.fails = 0.8;
}

/// A bug: it crashes at the same step each time.
void SamePlace(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.submission.max_restarts = 1000;
  job.crashes_at = dice.Between(seconds(2), job.work);
}

void BadInput(Dice&, const Shape&, JobTruth& job) { job.bad_input = true; }

void InBucket(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.checkpoint_parent = "s3://bucket/runs";
}

void After(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.comes_after = true;
}

void NotBefore(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.not_before = dice.Between(seconds(1), minutes(10));
  job.comes_after = dice.Chance(0.3);
}

void Sweep(Dice& dice, const Shape&, JobTruth& job) {
  job.members = static_cast<uint32_t>(2 + dice.Below(6));
  job.max_running = static_cast<uint32_t>(dice.Below(4));
  job.comes_after = dice.Chance(0.3);
  if (dice.Chance(0.6)) job.halving = Halving{.factor = 2, .rungs = {1, 3}};
}

/// Takes what there is, and more when nobody else waits.
void Elastic(Dice& dice, const Shape& shape, JobTruth& job) {
  job.submission.nodes = static_cast<uint32_t>(1 + dice.Below(std::min(shape.nodes, 3U)));
  job.submission.max_nodes =
      job.submission.nodes + static_cast<uint32_t>(1 + dice.Below(std::min(shape.nodes, 8U)));
  job.submission.ranks_per_node = static_cast<uint32_t>(1 + dice.Below(std::min(shape.most_devices, 2U)));
  job.submission.resize_interval_ms = MillisecondsOf(dice.Between(seconds(20), minutes(3)));
  if (dice.Chance(0.2)) job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(4));
}

/// A program that says nothing of itself, and keeps for itself how far it got.
void Command(Dice& dice, const Shape& shape, JobTruth& job) {
  if (dice.Chance(0.2)) {
    Elastic(dice, shape, job);
  } else {
    Gang(dice, shape, job);
  }
  if (dice.Chance(0.2)) job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(4));
  job.submission.kind = dice.Chance(0.8) ? imgd::JobKind::kCommand : imgd::JobKind::kConversion;
  job.submission.per_node = dice.Chance(0.4);
}

}  // namespace

double ValidationOf(const JobTruth& job, uint32_t epoch) {
  const double value = job.quality * (1 + 7.13 * epoch);
  return value - static_cast<double>(static_cast<uint64_t>(value));
}

const std::vector<JobKind>& KindsOfJobs() {
  static const std::vector<JobKind> kinds = {
      {"small", 20, Small},       {"gang", 30, Gang},           {"limited", 20, Limited},
      {"overlong", 6, Overlong},  {"crashing", 10, Crashing},   {"bad-input", 3, BadInput},
      {"in-bucket", 8, InBucket}, {"after", 14, After},         {"not-before", 5, NotBefore},
      {"sweep", 6, Sweep},        {"same-place", 5, SamePlace}, {"elastic", 16, Elastic},
      {"command", 16, Command},
  };
  return kinds;
}

JobTruth DrawJob(Dice& dice, const Shape& shape, uint64_t number) {
  uint64_t sum = 0;
  for (const auto& kind : KindsOfJobs()) sum += kind.weight;
  uint64_t drawn = dice.Below(sum);
  auto kind = KindsOfJobs().begin();
  while (drawn >= kind->weight) drawn -= (kind++)->weight;
  JobTruth job{.work = dice.Between(seconds(5), shape.longest_work),
               .checkpoint_every = dice.Between(seconds(20), minutes(5)),
               .fails = shape.rank_faults,
               .quality = static_cast<double>(dice.Below(1'000'000)) / 1e6};
  job.submission = {.name = fmt::format("{}-{}", kind->name, number),
                    .owner = "sim",
                    .priority = static_cast<int>(dice.Below(3)),
                    .max_restarts = static_cast<uint32_t>(dice.Below(8)),
                    .checkpoint_parent = "/ckpt"};
  kind->make(dice, shape, job);
  return job;
}

Shape ShapeOf(uint64_t seed) {
  Dice dice(seed ^ 0x5eed'0000'0000'0000);  // other draws than the life's
  Shape shape{.nodes = static_cast<uint32_t>(1 + dice.Below(5)),
              .most_devices = static_cast<uint32_t>(1 + dice.Below(4)),
              .two_storages = dice.Chance(0.3)};
  shape.busy = dice.Between(minutes(15), minutes(40));
  shape.between_jobs = dice.Between(seconds(20), minutes(3));
  shape.longest_work = dice.Between(minutes(1), minutes(15));
  shape.between_faults = dice.Chance(0.1) ? Duration::zero() : dice.Between(seconds(30), minutes(6));
  if (dice.Chance(0.2)) shape.rank_faults = 0;
  if (dice.Chance(0.3)) shape.failed_commits = 0;
  return shape;
}

Shape LargeShape(uint32_t nodes) {
  return {.nodes = nodes,
          .most_devices = 8,
          .busy = std::chrono::hours(24),
          .between_jobs = minutes(8) * 25 / std::max(nodes, 1U),
          .longest_work = std::chrono::hours(8),
          .between_faults = std::chrono::hours(100) / std::max(nodes, 1U),
          .rank_faults = 0.1,
          .failed_commits = 0.0001};
}

}  // namespace imgd::sim
