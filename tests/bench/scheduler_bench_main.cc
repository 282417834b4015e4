// How long one scheduling pass takes. Prints one line of JSON: milliseconds, the median of several passes, of
// the whole pass as the daemon makes it, and of the plan in it alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "server/core/scheduler.h"
#include "tests/bench/busy_cluster.h"

namespace imgd {
namespace {

constexpr int kPasses = 11;
using Milliseconds = std::chrono::duration<double, std::milli>;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int Measure(BusySize size) {
  BusyCluster busy(size);
  const uint64_t before = busy.starts();
  std::vector<double> whole;
  for (int pass = 0; pass < kPasses; ++pass) whole.push_back(busy.Pass().count());
  const auto& state = busy.reactor().state();
  const Snapshot cluster = busy.reactor().MakeSnapshot(busy.now());
  std::vector<double> plans;
  std::shared_ptr<Layout> memory;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begun = std::chrono::steady_clock::now();
    const Plan plan = MakePlan(cluster, state.queue(), memory);
    plans.push_back(Milliseconds(std::chrono::steady_clock::now() - begun).count());
  }
  std::printf(
      "{\"milliseconds\": %.4f, \"plan_milliseconds\": %.4f, \"slowest\": %.4f, \"queued\": %zu, \"active\": "
      "%zu, "
      "\"starts\": %lu}\n",
      Median(whole), Median(plans), *std::max_element(whole.begin(), whole.end()), state.queue().size(),
      state.active().size(), busy.starts() - before);
  return 0;
}

}  // namespace
}  // namespace imgd

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: scheduler_bench NODES QUEUED RUNNING\n");
    return 2;
  }
  const auto number = [argv](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  return imgd::Measure({.nodes = number(1), .queued = number(2), .running = number(3)});
}
