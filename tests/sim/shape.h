#pragma once

#include <string>
#include <vector>

#include "server/core/reactor.h"
#include "tests/sim/timeline.h"

namespace imgd::sim {

/// What kind of cluster lives, and how badly.
struct Shape {
  uint32_t nodes = 4;
  uint32_t most_devices = 4;                 ///< on a node
  bool two_storages = false;                 ///< half of the nodes see another file system
  Duration busy = std::chrono::minutes(40);  ///< jobs come and things fail for so long
  Duration between_jobs = std::chrono::minutes(2);
  Duration longest_work = std::chrono::minutes(15);
  Duration between_faults = std::chrono::minutes(2);  ///< of machines, streams, the daemon; zero: none
  double rank_faults = 0.25;                          ///< part of the starts that fail by themselves
  double failed_commits = 0.004;                      ///< of those that store something
  uint64_t batch_ms = 4;                              ///< what comes within less is one batch, at most
  Duration tick = std::chrono::seconds(1);  ///< between two looks at the clock, of imgd and of agents
  bool kinds_of_nodes = false;              ///< several, and jobs that ask for some of them
  Duration between_orders{};                ///< of people to jobs and nodes; zero: none
  uint32_t users = 1;
  Quotas quotas;
  Duration half_life{};  ///< of what users have had; zero: they take no turns
  Duration turns_end{};  ///< when an operator says that they take none any more; zero: never
  Shares shares;
  Duration aging{};  ///< that a job waits for a step of priority; zero: none is gained
  bool preemption = true;
  double urgent = 0;   ///< part of the jobs for which all others make room; zero: priorities are as they come
  double elastic = 0;  ///< part of the jobs that may grow, by a node or two; zero: as kinds of jobs come
  Duration to_midnight{};  ///< when the day, the week and the month end; zero: later
};

/// What is true of a node.
struct NodeTruth {
  uint32_t devices = 1;
  std::string storage;
  std::string model = "sim";
  uint64_t memory_bytes = 0;
  Labels labels = {};
  double price_per_hour = 0;
};
NodeTruth DrawNode(Dice& dice, const Shape& shape, uint32_t number);

/// The gang may be on such a node, and have its devices: all of a node here are of one kind. In words of the
/// job file, not of the core.
bool NodeDoes(const Needs& needs, const NodeRecord& node);

/// A small cluster, different for each seed.
Shape ShapeOf(uint64_t seed);
/// A large one that is rarely in trouble, to see how fast it goes.
Shape LargeShape(uint32_t nodes);

/// What is true of a job, whatever the daemon knows of it.
struct JobTruth {
  Submission submission;
  Duration work{};  ///< training from the first step to the last
  Duration checkpoint_every{};
  double fails = 0;        ///< of its starts
  bool bad_input = false;  ///< each start ends with exit code 2
  Duration crashes_at{};   ///< each start crashes when so much is trained; zero: none does
  // Of one that waits for more than devices:
  bool comes_after = false;  ///< some other job, which the world chooses
  Duration not_before{};     ///< from its submission
  // Of a sweep:
  uint32_t members = 0;  ///< 0: no sweep
  uint32_t max_running = 0;
  std::optional<Halving> halving;
  std::string sweep = {};  ///< a member's: its sweep's name
  double quality = 0;      ///< from 0 to 1
};

/// Of jobs that may grow.
inline constexpr const char* kElasticOwner = "eve";

/// Epochs that a job trains for.
inline constexpr uint32_t kEpochs = 5;
/// What its validation finds after one of them. Who is the best changes from epoch to epoch.
double ValidationOf(const JobTruth& job, uint32_t epoch);

/// One kind of job that users submit. A new kind is a row in KindsOfJobs().
struct JobKind {
  const char* name;
  uint32_t weight;
  void (*make)(Dice&, const Shape&, JobTruth&);
};
const std::vector<JobKind>& KindsOfJobs();

/// The next job that some user wants.
JobTruth DrawJob(Dice& dice, const Shape& shape, uint64_t number);

}  // namespace imgd::sim
