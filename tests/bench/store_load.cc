#include <fmt/format.h>

#include "server/store/state_store.h"
#include "tests/bench/control_load.h"

namespace imgd {
namespace {

constexpr int64_t kFirstSubmit = 1'700'000'000'000'000;  // microseconds since 1970 UTC
constexpr int64_t kMinute = 60'000'000;

JobRecord JobOf(uint64_t number, const std::string& cluster) {
  const auto submitted = kFirstSubmit + static_cast<int64_t>(number) * kMinute;
  const bool ended = number % 10 != 0;
  const bool failed = number % 7 == 0;
  JobRecord job{
      .id = JobId(number),
      .name = fmt::format("rn50-{}", number % 500),
      .owner = fmt::format("user{}", number % 20),
      .nodes = 1 + static_cast<uint32_t>(number % 4),
      .ranks_per_node = 8,
      .checkpoint_dir = fmt::format("/shared/checkpoints/rn50-{}-{}-{}", number % 500, cluster, number),
      .state = JobState::kQueued,
      .reason = {ReasonCode::kSubmitted, "submitted"},
      .submitted = {submitted}};
  if (!ended) return job;
  job.state = failed ? JobState::kFailed : JobState::kCompleted;
  job.reason = failed ? Reason{ReasonCode::kRankFailed, "rank 3 on gpu-00001 exited with 1"}
                      : Reason{ReasonCode::kFinished, "trained to the last step"};
  job.generation = job.last_writer = Generation(1);
  job.started = {submitted + kMinute};
  job.ended = {submitted + 60 * kMinute};
  for (uint32_t node = 0; node < job.nodes; ++node) {
    job.run.parts.push_back({.node = NodeId(fmt::format("gpu-{:05}", (number + node) % 1000)),
                             .first_rank = node * 8,
                             .devices = {0, 1, 2, 3, 4, 5, 6, 7},
                             .phase = RunPhase::kGone,
                             .contacted = true});
  }
  return job;
}

}  // namespace

Status FillStore(const std::filesystem::path& state_dir, uint64_t jobs) {
  std::filesystem::create_directories(state_dir);
  IMGD_ASSIGN(auto store, StateStore::Open(state_dir));
  for (uint64_t number = 1; number <= jobs; ++number) {
    const JobRecord job = JobOf(number, store.cluster_id());
    store.SaveJob(job);
    store.SaveJobFile(job.id, "name: rn50\ndata: {train: /data/imagenet/train}\n");
    store.AppendEvent(1, {.job = job.id,
                          .first = true,
                          .reason = {ReasonCode::kSubmitted, "submitted"},
                          .actor = fmt::format("user:{}", job.owner),
                          .time = job.submitted});
    store.SaveCheckpoint({.job = job.id,
                          .checkpoint = {.path = job.checkpoint_dir + "/g1/step5000",
                                         .step = 5000,
                                         .generation = Generation(1),
                                         .size_bytes = 204'000'000,
                                         .manifest_sha256 = std::string(64, 'a'),
                                         .accepted = job.ended}});
    if (number % 1000 == 0) IMGD_TRY(store.Commit());
  }
  IMGD_TRY(store.Commit());
  fmt::print("{{\"jobs\": {}}}\n", jobs);
  return {};
}

}  // namespace imgd
