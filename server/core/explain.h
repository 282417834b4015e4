#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "server/core/allowances.h"
#include "server/core/kept.h"
#include "server/core/room.h"
#include "server/core/scheduler.h"
#include "server/core/types.h"

namespace imgd {

/// Who asks why it waits.
struct Waiting {
  QueuedJob job;
  ReasonCode code = ReasonCode::kNone;
  size_t position = 0;               ///< in the queue, from 1
  const QueuedJob* ahead = nullptr;  ///< just before it in the queue
};

/// "1 node", "3 nodes".
std::string CountText(uint64_t count, std::string_view noun);
/// "job 3 (rn50-a)".
std::string NameOfJob(JobId id, const std::string& name);
/// The same of one that holds devices or is in the way.
std::string NameOfJob(const Snapshot& cluster, JobId id);
/// The same of one that waits.
std::string NameOfJob(const Snapshot& cluster, const QueuedJob& job);

/// "1 h 05 min", "40 min", "20 s".
std::string TimeText(Duration time);
/// "in about 40 min" where it is an estimate, else "in 40 min at the latest".
std::string InText(Duration time, bool estimate);

/// " and ends in about 40 min", of one that holds devices; empty where nobody knows, or where it is said
/// otherwise.
std::string ExplainEnd(const Snapshot& cluster, JobId id);

/// The job at this place of the queue, from 0.
Waiting WaitingAt(const std::vector<QueuedJob>& queue, size_t place);

/// Why a queued job waits and what it waits for, in a sentence: "needs 2 nodes with 1 free device each; 1 is
/// free; job 3 (rn50-a) holds gpu-2; position 2, behind job 5 (rn50-b)". Of one that no plan has looked at
/// yet, what it needs and what there is.
std::string ExplainWait(const Snapshot& cluster, const Waiting& waiting);

/// Nodes that see the folder of the job's checkpoints; all, where that does not matter. `layout`: of the
/// cluster's nodes.
std::vector<const NodeSlots*> NodesInReach(const Snapshot& cluster, Layout& layout, const QueuedJob& job);

/// Of these nodes, those that would do for the job, but take nothing now: "node gpu-3 is drained by alice
/// (and so gpu-4)"; at most three reasons, each with at most three nodes, and how many have others.
std::vector<std::string> ExplainUnusable(const std::vector<const NodeSlots*>& nodes, const QueuedJob& job);

/// Why one of the victims is preempted: "its own is 1, and of what would make room its end loses the
/// least, 12.5 device-minutes of work".
std::string ExplainVictim(const Snapshot& cluster, const std::vector<JobId>& victims, JobId victim);

/// The same of many jobs at one moment: of those that ask for the same the nodes are looked through once.
class WaitTexts {
 public:
  /// `cluster` must outlive it. `layout`: of its nodes; null where there is none yet.
  explicit WaitTexts(const Snapshot& cluster, std::shared_ptr<Layout> layout = nullptr)
      : cluster_(cluster), layout_(std::move(layout)), kept_(cluster) {}
  std::string Of(const Waiting& waiting);
  Kept& kept() { return kept_; }

 private:
  /// Why, what of which nodes it asks for, and what is reserved for it.
  using Shape = std::tuple<ReasonCode, int, uint32_t, uint32_t, uint32_t, uint32_t, Needs, std::string,
                           NodeId, std::set<NodeId>, size_t, const Reservation*>;
  std::string OfShape(const Waiting& waiting);
  std::string Explain(const Waiting& waiting);
  Room& room();

  const Snapshot& cluster_;
  std::shared_ptr<Layout> layout_;
  std::optional<Room> room_;              ///< once it was asked for
  std::optional<Allowances> allowances_;  ///< likewise
  Kept kept_;
  std::map<Shape, std::string> known_;  ///< without its place in the queue
};

/// "its log says \"CUDA error: uncorrectable ECC error\": a GPU is broken (pattern ecc)".
std::string ExplainMatch(const LogMatch& match);

/// "started by hand on gpu-3", or "... and 2 other hosts".
std::string ExplainByHand(const ByHand& run);

/// "is drained by alice: bad fan (1 job still there)", "is set aside by imgd: ..."; empty for a node that
/// nobody set aside.
std::string ExplainAside(const NodeRecord& node);

/// "is sick: it has a clock that is 40 s behind imgd's"; empty for a node that passed its health checks.
std::string ExplainProblems(const NodeRecord& node);

/// "is being taken back by the cloud, at 14:02:11 UTC (terminate)", or "was ..." where it can't be reached
/// any more; empty for a node that stays.
std::string ExplainNotice(const NodeRecord& node);

/// "node gpu-3 is out of reach for 20 s, so that nobody knows ...", of a job that runs; empty where all its
/// nodes answer. `nodes`: by name.
std::string ExplainSilent(const JobRecord& job, const std::vector<NodeRecord>& nodes);

/// Why a node takes nothing new; empty when it does.
std::string ExplainNode(const NodeRecord& node);

}  // namespace imgd
