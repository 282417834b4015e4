// How long one scheduling pass takes. Prints one line of JSON: milliseconds, the median of several passes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "server/core/scheduler.h"

namespace imgd {
namespace {

constexpr uint32_t kDevices = 8;
constexpr int kPasses = 7;
constexpr Instant kNow(std::chrono::hours(1000));

uint32_t Draw(std::mt19937_64& random, uint32_t below) { return static_cast<uint32_t>(random() % below); }

constexpr std::array<const char*, 3> kModels = {"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla T4"};

/// One of three models, in eight zones, of 16 nodes to a placement group; every third node is spot.
std::shared_ptr<const NodeKind> KindOfNode(NodeKinds& kinds, uint32_t node) {
  Labels labels = {{"zone", fmt::format("zone-{}", node % 8)},
                   {"placement_group", fmt::format("group-{}", node / 128 * 8 + node % 8)}};
  if (node % 3 == 0) labels["capacity"] = "spot";
  std::vector<Device> devices;
  for (uint32_t device = 0; device < kDevices; ++device)
    devices.push_back({.index = device, .model = kModels[node / 8 % kModels.size()]});
  return kinds.Of(std::move(devices), std::move(labels));
}

/// Half of the jobs take any node.
Needs DrawNeeds(std::mt19937_64& random) {
  Needs needs;
  if (Draw(random, 2) == 0) return needs;
  needs.gpu = true;
  if (Draw(random, 2) == 0) needs.models = {Draw(random, 2) == 0 ? "H100" : "A100"};
  if (Draw(random, 4) == 0) needs.not_labels["capacity"] = {"spot"};
  return needs;
}

/// A cluster of nodes with 8 devices each that is nearly full of running jobs of 1 to 32 devices, of which
/// half say when they end.
Snapshot ClusterOf(uint32_t nodes, uint32_t running, std::mt19937_64& random) {
  Snapshot cluster{.now = kNow};
  NodeKinds kinds;
  for (uint32_t i = 0; i < nodes; ++i) {
    NodeSlots node{.id = NodeId(fmt::format("gpu-{:06}", i)), .usable = true};
    for (uint32_t device = 0; device < kDevices; ++device) node.devices.push_back(device);
    node.holders.resize(kDevices);
    node.kind = KindOfNode(kinds, i);
    cluster.nodes.push_back(std::move(node));
  }
  uint32_t slot = 0;
  for (uint32_t i = 0; i < running; ++i) {
    const JobId job(i + 1);
    cluster.job_names[job] = "running";
    if (Draw(random, 2) == 0) cluster.ends[job] = kNow + std::chrono::minutes(1 + Draw(random, 3000));
    for (uint32_t left = 1U << Draw(random, 6); left > 0 && slot < nodes * kDevices; --left, ++slot) {
      cluster.nodes[slot / kDevices].holders[slot % kDevices] = job;
    }
  }
  return cluster;
}

std::vector<QueuedJob> QueueOf(uint32_t jobs, std::mt19937_64& random) {
  std::vector<QueuedJob> queue;
  for (uint32_t i = 0; i < jobs; ++i) {
    QueuedJob job{.priority = -static_cast<int>(Draw(random, 3)),
                  .id = JobId(10'000'000 + i),
                  .nodes = 1U << Draw(random, 6),
                  .ranks_per_node = 1U << Draw(random, 4),
                  .needs = DrawNeeds(random),
                  .code = ReasonCode::kWaitsForDevices};
    if (Draw(random, 2) == 0) job.most = std::chrono::minutes(1 + Draw(random, 600));
    queue.push_back(job);
  }
  std::sort(queue.begin(), queue.end(), [](const auto& a, const auto& b) { return a.Before(b); });
  return queue;
}

double MedianMilliseconds(uint32_t nodes, uint32_t queued, uint32_t running) {
  std::mt19937_64 random(1);
  const Snapshot cluster = ClusterOf(nodes, running, random);
  const auto queue = QueueOf(queued, random);
  std::vector<double> times;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begun = std::chrono::steady_clock::now();
    const Plan plan = MakePlan(cluster, queue);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count());
    if (pass == 0) std::fprintf(stderr, "%zu starts, %zu waits\n", plan.starts.size(), plan.waits.size());
  }
  std::nth_element(times.begin(), times.begin() + kPasses / 2, times.end());
  return times[kPasses / 2];
}

}  // namespace
}  // namespace imgd

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: scheduler_bench NODES QUEUED RUNNING\n");
    return 2;
  }
  const auto number = [argv](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  std::printf("{\"milliseconds\": %.4f}\n", imgd::MedianMilliseconds(number(1), number(2), number(3)));
}
