#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"

namespace imgd::cli {

/// What `imgcli top` knows of the job that is open.
struct TopJob {
  v1::GetJobResponse job;
  v1::GetMetricsResponse metrics;  ///< loss, top1 and images_per_second by step, where it has any
  std::vector<v1::LogLine> lines;  ///< the last ones, by time
  double total_epochs = 0;         ///< 0: not known
};

/// What `imgcli top` knows of the cluster.
struct TopData {
  std::string server;                              ///< address of the daemon
  int64_t taken_us = 0;                            ///< when it answered last, microseconds since 1970 UTC
  std::vector<v1::Node> nodes;                     ///< by name
  std::vector<v1::Job> jobs;                       ///< in the order of the table
  bool more_jobs = false;                          ///< others are in the queue or paused
  std::map<uint64_t, std::vector<double>> losses;  ///< by job, over all of its steps
  std::optional<TopJob> job;                       ///< the one that is open
  std::string job_problem;                         ///< why it can't be shown; empty where it can
  std::string warning;                             ///< what is wrong with the daemon itself
  std::string outage;                              ///< why it does not answer; empty where it does
  int64_t away_since_us = 0;                       ///< microseconds since 1970 UTC
  std::string message;                             ///< what became of the last thing that was asked for
  Style message_style = Style::kPlain;
  int64_t message_us = 0;  ///< when, microseconds since 1970 UTC
};

/// Sorts for the table: those that hold nodes, the queue by its places, what is paused, then what has ended,
/// newest first.
void SortForTop(std::vector<v1::Job>& jobs);

/// The sums over the cluster.
struct TopTotals {
  int nodes = 0;
  int nodes_ready = 0;  ///< that new runs may be placed on
  int devices = 0;
  int devices_allocated = 0;
  int devices_free = 0;  ///< on nodes that new runs may be placed on
  int running = 0;       ///< jobs that hold nodes
  int queued = 0;
  int paused = 0;
  double images_per_second = 0;  ///< of all that run
};
TopTotals TotalsOf(const TopData& data);

}  // namespace imgd::cli
