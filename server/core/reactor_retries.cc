#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/reactor.h"
#include "server/core/room.h"
#include "server/core/trial.h"

/// The reactor's part in telling a job's fault from a node's: nodes on which different jobs fail are set
/// aside, and a job that crashed twice on one node is tried on another.
namespace imgd {
namespace {

/// So many of a node's strikes are remembered, or as many as set it aside.
constexpr size_t kMostStrikes = 16;

/// Strikes of a job and of its whole sweep, whose files differ in little: what is wrong with one is with
/// most.
struct IsOf {
  JobId job;
  const SweepRecord* sweep;  ///< null where it is of none
  IsOf(const JobRecord& of, const ClusterState& state) : job(of.id), sweep(state.FindSweep(of.sweep)) {}
  bool operator()(const Strike& strike) const {
    return strike.job == job || (sweep != nullptr && sweep->Has(strike.job));
  }
};

bool IsStruck(const NodeRecord& node, const IsOf& by) {
  return std::any_of(node.strikes.begin(), node.strikes.end(), by);
}

std::string NamesOfJobs(const std::vector<Strike>& strikes) {
  std::vector<std::string> names;
  for (const auto& strike : strikes) {
    names.push_back(strike.job == JobId() ? "one that was deleted"
                                          : fmt::format("{} ({})", strike.job, strike.name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A line in some job's log, which is believed, says that it is the node's fault.
bool IsTold(const NodeRecord& node) {
  return std::ranges::any_of(node.strikes, [](const auto& strike) { return strike.told; });
}

std::string ExplainStrikes(const std::vector<Strike>& strikes) {
  return fmt::format("{} different jobs failed there in a row: {}", strikes.size(), NamesOfJobs(strikes));
}

}  // namespace

/// What a run's end says of the nodes that it was on. Returns what was done, to go after the cause.
std::string Reactor::JudgeNodes(const JobRecord& job, const Verdict& verdict, Now now, Actions& out) {
  const bool gave_back = GivesBack(job.run.stop) || verdict.to == JobState::kCancelled;
  const NodeId node = gave_back ? NodeId() : verdict.node;
  if (verdict.to == JobState::kCompleted || job.run.progressed) ClearStrikes(job, node);
  if (node == NodeId()) return "";
  const auto action = verdict.match ? verdict.match->action : PatternAction::kLabel;
  if (action == PatternAction::kNoRetry) return "";
  if (verdict.doubted) TakeBackExclusions(job, now, out);
  if (action == PatternAction::kExcludeNode) return Exclude(job, node, *verdict.match, now, out);
  // One that fails on several nodes is at fault itself, but not of what fails before anything of it runs.
  if (job.crashes.nodes.size() > 1 && job.crashes.nodes.contains(node)) {
    TakeBackStrikes(job, now, out);
    return "";
  }
  return Strike(job, node, verdict.reason.text, now, out);
}

/// What the log says is of the node, whatever else becomes of the job.
std::string Reactor::Exclude(const JobRecord& job, const NodeId& node, const LogMatch& match, Now now,
                             Actions& out) {
  const NodeRecord* known = state_.FindNode(node);
  if (known == nullptr) return "";
  const bool again = IsStruck(*known, IsOf(job, state_));
  std::string reason = fmt::format("job {} ({}) failed there, and {}", job.id, job.name, ExplainMatch(match));
  auto& strikes = state_.EditNode(node).strikes;
  if (known->set_aside) {
    std::erase_if(strikes, IsOf(job, state_));
  } else {
    strikes.clear();
  }
  strikes.push_back({.job = job.id, .name = job.name, .told = true});
  if (known->set_aside) {
    // Jobs that failed there may turn out to be at fault themselves; this stays true.
    if (known->set_aside->by != AsideBy::kStrikes) return "";
    return PutAside(node, AsideBy::kPattern, std::move(reason), now, out);
  }
  // That it stays in use was said before.
  if (again && !WhyNotSetAside(node).empty()) return "";
  return SetAsideByImgd(node, AsideBy::kPattern, std::move(reason), now, out);
}

/// Of the nodes that its log spoke of, those stay set aside of which another job's did too, or where enough
/// jobs failed all the same.
void Reactor::TakeBackExclusions(const JobRecord& job, Now now, Actions& out) {
  const size_t limit = settings_.set_aside_after;
  for (const NodeId& id : job.crashes.sick) {
    if (state_.FindNode(id) == nullptr) continue;
    NodeRecord& node = state_.EditNode(id);
    std::erase_if(node.strikes, IsOf(job, state_));
    if (!node.set_aside || node.set_aside->by == AsideBy::kUser) continue;
    if (IsTold(node)) continue;
    if (limit == 0 || node.strikes.size() < limit) {
      UseAgain(node, job, "says in its log that other nodes are broken too", now, out);
    } else if (node.set_aside->by == AsideBy::kPattern) {
      PutAside(id, AsideBy::kStrikes, ExplainStrikes(node.strikes), now, out);
    }
  }
}

/// `why`: that the job itself is at fault.
void Reactor::UseAgain(NodeRecord& node, const JobRecord& job, std::string_view why, Now now, Actions& out) {
  node.set_aside.reset();
  NoteNode(node.id, ReasonCode::kReturnedByImgd,
           fmt::format("node {} may be used again: job {} ({}), for which it was set aside, {}", node.id,
                       job.id, job.name, why),
           "scheduler", now, out);
  dirty_ = true;
}

/// The job got somewhere, so its nodes can't be all that bad; of `but` it is not known.
void Reactor::ClearStrikes(const JobRecord& job, const NodeId& but) {
  for (const auto& part : job.run.parts) {
    const NodeRecord* node = state_.FindNode(part.node);
    if (node != nullptr && part.node != but && !node->strikes.empty() && !node->set_aside)
      state_.EditNode(part.node).strikes.clear();
  }
}

std::string Reactor::Strike(const JobRecord& job, const NodeId& id, const std::string& cause, Now now,
                            Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr) return "";
  const bool again = IsStruck(*known, IsOf(job, state_));
  NodeRecord& node = state_.EditNode(id);
  const size_t before = node.strikes.size();
  if (!again) node.strikes.push_back({job.id, job.name});
  const size_t limit = settings_.set_aside_after;
  if (node.strikes.size() > std::max(kMostStrikes, limit)) node.strikes.erase(node.strikes.begin());
  if (limit == 0 || node.strikes.size() < limit) return "";
  // That it stays in use was said when it came to so many.
  if (before >= limit && !WhyNotSetAside(id).empty()) return "";
  return SetAsideByImgd(id, AsideBy::kStrikes,
                        fmt::format("{}; the last: {}", ExplainStrikes(node.strikes), cause), now, out);
}

/// What a line in its log told of a node stays.
void Reactor::TakeBackStrikes(const JobRecord& job, Now now, Actions& out) {
  const IsOf by_job(job, state_);
  for (const NodeId& id : job.crashes.nodes) {
    const NodeRecord* known = state_.FindNode(id);
    if (known == nullptr || !IsStruck(*known, by_job)) continue;
    NodeRecord& node = state_.EditNode(id);
    std::erase_if(node.strikes, [&](const auto& strike) { return by_job(strike) && !strike.told; });
    const bool by_strikes = node.set_aside && node.set_aside->by == AsideBy::kStrikes;
    const size_t limit = settings_.set_aside_after;
    if (!by_strikes || (limit > 0 && node.strikes.size() >= limit) || IsTold(node)) continue;
    UseAgain(node, job, "failed on other nodes too", now, out);
  }
}

void Reactor::ForgetInStrikes(JobId job) {
  const auto of_job = [job](const struct Strike& strike) { return strike.job == job; };
  std::vector<NodeId> struck;
  for (const auto& [id, node] : state_.nodes()) {
    if (std::ranges::any_of(node.strikes, of_job)) struck.push_back(id);
  }
  for (const NodeId& id : struck) {
    for (auto& strike : state_.EditNode(id).strikes) {
      if (of_job(strike)) strike = {.told = strike.told};
    }
  }
}

/// Why imgd leaves the node in use all the same: a fault of all jobs or of all nodes must not empty the
/// cluster. Empty where it may be set aside.
std::string Reactor::WhyNotSetAside(const NodeId& id) const {
  size_t known = 0;
  size_t aside = 0;
  size_t others = 0;
  size_t struck = 0;
  for (const auto& [other, node] : state_.nodes()) {
    if (node.state == NodeState::kLost) continue;
    ++known;
    if (node.set_aside && node.set_aside->by != AsideBy::kUser) ++aside;
    if (other == id || node.set_aside) continue;
    ++others;
    if (node.strikes.size() + 1 >= std::max(settings_.set_aside_after, 2U)) ++struck;
  }
  if (2 * (aside + 1) > known)
    return fmt::format("that would be more than half of the nodes ({} of {} are set aside already)", aside,
                       known);
  if (struck > 0 && 2 * struck >= others)
    return fmt::format("jobs fail on {} of the {} other nodes too", struck, others);
  return "";
}

std::string Reactor::SetAsideByImgd(const NodeId& id, AsideBy by, std::string reason, Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr || known->set_aside) return "";
  if (const std::string why_not = WhyNotSetAside(id); !why_not.empty()) {
    NoteNode(id, ReasonCode::kStaysInUse,
             fmt::format("node {} stays in use, for {}, though {}", id, why_not, reason), "scheduler", now,
             out);
    return fmt::format("; node {} stays in use, for {}", id, why_not);
  }
  return PutAside(id, by, std::move(reason), now, out);
}

std::string Reactor::PutAside(const NodeId& id, AsideBy by, std::string reason, Now now, Actions& out) {
  NoteNode(id, ReasonCode::kSetAsideByImgd,
           fmt::format("node {} is set aside: {}; imgcli node uncordon {} undoes it", id, reason, id),
           "scheduler", now, out);
  state_.EditNode(id).set_aside = {
      .reason = std::move(reason), .actor = "scheduler", .since = now.wall, .by = by};
  dirty_ = true;
  return fmt::format("; node {} is set aside", id);
}

std::vector<NodeId> Reactor::BlamedByGang(const JobRecord& job, const Verdict& verdict) const {
  const auto watched = watched_.find(job.id);
  const bool known = watched != watched_.end() && watched->second.generation == job.generation;
  if (!known || !BrokeBeforeTraining(job, verdict)) return {};
  std::vector<NodeId> blamed = BlamedNodes(job.run, NodesOf(job), watched->second.ranks);
  // Of those that can't be told apart it is the one that the job met with before.
  const auto met = [&](const NodeId& id) {
    const NodeRecord* node = state_.FindNode(id);
    return node != nullptr && IsStruck(*node, IsOf(job, state_));
  };
  if (std::any_of(blamed.begin(), blamed.end(), met)) std::erase_if(blamed, std::not_fn(met));
  return blamed;
}

/// Counts it against nodes that their gang blames. Returns what to say of it.
std::string Reactor::Blame(const JobRecord& job, const std::vector<NodeId>& nodes, const std::string& cause,
                           Now now, Actions& out) {
  if (nodes.empty()) return "";
  std::vector<std::string> names;
  std::string done;
  for (const auto& node : nodes) {
    names.push_back(node.name());
    done += Strike(job, node, cause, now, out);
  }
  return fmt::format(
      "; before they trained, the ranks got no answer from node {} or waited for it, so that it is "
      "avoided next time where others are free{}",
      fmt::join(names, " and node "), done);
}

/// One that crashed twice in a place, both times on one node, is tried on others where they are free: a third
/// crash there is its own fault, and a sick node does not end jobs. So is one whose gang blames nodes.
void Reactor::TryElsewhere(JobId id, const std::vector<NodeId>& blamed) {
  const JobRecord& job = *state_.FindJob(id);
  if (job.state != JobState::kQueued || !TriesElsewhere(job.reason.code)) return;
  std::set<NodeId> without(blamed.begin(), blamed.end());
  if (job.crashes.times == 2 && job.crashes.nodes.size() == 1) without.insert(*job.crashes.nodes.begin());
  if (!without.empty()) elsewhere_[id] = std::move(without);
}

/// Each without all of its nodes, or at least without the last, where not that many others are free. What all
/// depend on, a data server, say, ends thousands at once: one look at the cluster does for those of a batch.
void Reactor::FindElsewhere(Now now) {
  if (elsewhere_.empty()) return;
  Snapshot cluster = FreeAndHeld(now, std::move(last_seen_));
  Room room(cluster.nodes);
  for (auto& [id, without] : std::exchange(elsewhere_, {})) {
    const JobRecord* job = state_.FindJob(id);
    if (job == nullptr || job->state != JobState::kQueued) continue;
    const QueuedJob entry{.id = id,
                          .nodes = job->nodes,
                          .ranks_per_node = job->ranks_per_node,
                          .needs = job->needs,
                          .folder = FolderOf(*job),
                          .resumes_with = NodeWithCheckpoints(*job)};
    if (!room.HoldsWithout(entry, without)) {
      without = {*without.rbegin()};
      if (!room.HoldsWithout(entry, without)) continue;
    }
    state_.EditJob(id).avoid.insert(without.begin(), without.end());
    state_.Changed(id);
  }
  last_seen_ = std::move(cluster);
}

}  // namespace imgd
