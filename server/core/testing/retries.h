#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "server/core/testing/test_cluster.h"

namespace imgd {

inline LogMatch Match(PatternAction action) {
  return {.pattern = "p", .label = "it is broken", .line = "a line", .action = action};
}

/// Jobs that fail.
struct Retries : testing::Test {
  /// The job's only rank crashes by itself at that step, wherever it runs; returns where.
  std::string Crash(JobId job, uint64_t step, std::optional<LogMatch> match = {}) {
    BringUp(job);
    const std::string node = NodeOf(job);
    cluster.Pulses(node, job, {{.rank = 0, .step = step, .what = "forward pass"}});
    RankExit exit = ExitCode(0, 1, "IndexError: label 1000");
    exit.match = std::move(match);
    cluster.Failed(job, {.rank = 0, .message = "label 1000 is out of range"});
    cluster.Ends(node, job, {exit});
    return node;
  }
  void BringUp(JobId job) {
    for (int i = 0; i < 70 && cluster.Job(job).state == JobState::kQueued; ++i)
      cluster.Pass(std::chrono::seconds(1));
    cluster.BringUp(job);
  }
  std::string NodeOf(JobId job) { return cluster.Job(job).run.parts.front().node.name(); }
  /// A job of its own that crashes once and is cancelled.
  JobId FailsOnce(const std::string& name) {
    const JobId job = cluster.Submit(name);
    Crash(job, 5);
    EXPECT_TRUE(cluster.Cancel(job).has_value());
    return job;
  }
  TestCluster cluster;
};

}  // namespace imgd
