#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/core/layout.h"
#include "server/core/scheduler.h"
#include "server/core/types.h"

/// How a gang that may have more nodes than it needs gets them, and what is said of it. Pure.
namespace imgd {

class ClusterState;

/// What jobs may grow onto: free devices of nodes that nobody who waits could use.
class Growth {
 public:
  /// Take() is noted in `cluster`, which must outlive this.
  /// `waiting`, `coming`: the queue, and those who will be in it when their ranks have ended. Where all nodes
  /// that are not lost are too few for one of these it counts as nobody. Cost: O(nodes + those who wait +
  /// sorts of nodes * kinds of those who wait).
  /// `layout`: of the cluster's nodes.
  Growth(Snapshot& cluster, std::shared_ptr<Layout> layout, const std::vector<QueuedJob>& waiting,
         const std::vector<QueuedJob>& coming);
  Growth(Snapshot& cluster, const std::vector<QueuedJob>& waiting, const std::vector<QueuedJob>& coming)
      : Growth(cluster, std::make_shared<Layout>(cluster.nodes), waiting, coming) {}

  /// The gang of a job that runs on `parts`, with as many more nodes as it may have, the nearest to its first
  /// one before others, and of these the fullest; the quotas of its accounts hold, and while one of these
  /// accounts has somebody who waits it gets nothing. Nothing where there are none, or where one of its own
  /// nodes could not be used again. Cost: O(open nodes * log nodes), besides the nodes' folders.
  std::optional<std::vector<Part>> Find(const QueuedJob& job, const std::vector<Part>& parts);

  /// Where not, Find() finds nothing for anybody.
  bool HasOpenNodes() const { return !open_.empty(); }

  /// Why Find() finds nothing: "no other node has 2 free GPUs".
  std::string WhyNot(const QueuedJob& job, const std::vector<Part>& parts);

  /// The gang's devices are the job's.
  void Take(const QueuedJob& job, const std::vector<Part>& before, const std::vector<Part>& gang);

 private:
  struct Extra;
  std::vector<Extra> ExtrasFor(const QueuedJob& job, const std::vector<Part>& parts);
  void FindOpen(const std::vector<QueuedJob>& waiting, const std::vector<QueuedJob>& coming);
  void Claim(const QueuedJob& waiting);
  uint32_t LeftOfQuotas(const QueuedJob& job) const;
  std::string WhyNoMoreByQuota(const QueuedJob& job) const;
  void NumberRanks(std::vector<Part>& parts) const;

  Snapshot& cluster_;
  std::shared_ptr<Layout> layout_;
  std::vector<size_t> open_;  ///< nodes that something is free on and nobody waits for
  /// Accounts of which somebody waits who could have devices by their quota, and the first of these.
  std::map<std::string, std::string> claimed_;
};

/// Why a job has fewer nodes than it could: "has 2 of at most 8 nodes: it may grow in 4 min"; empty for one
/// that does not run, or has as many. `waiting`: the queue. Cost: that of Growth.
std::string ExplainSize(const JobRecord& job, const Snapshot& cluster, const std::vector<QueuedJob>& waiting);

/// "4 nodes instead of 2: gpu-3 and gpu-4 are free".
std::string ExplainGrowth(const std::vector<Part>& before, const std::vector<Part>& after);

/// The same of a job that starts on `after`, and why: "goes on with 1 node instead of 2: node gpu-2 is lost".
/// Empty for its first start, and where it has as many nodes as before. `state`: what its nodes are now.
/// `quota_left`: by its placement.
std::string ExplainResize(const JobRecord& job, const std::vector<Part>& after, const ClusterState& state,
                          const std::optional<QuotaLeft>& quota_left);

}  // namespace imgd
