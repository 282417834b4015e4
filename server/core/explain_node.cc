#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "server/core/explain.h"

/// Why nodes take nothing, and what is said of jobs on them.
namespace imgd {
namespace {

/// Why nobody could use the node, whoever wanted to.
std::string ExplainReach(const NodeRecord& node) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(node.silence).count();
  if (node.state != NodeState::kReady && node.notice) return ExplainNotice(node);
  if (node.state == NodeState::kLost) return "is lost: it was out of reach for too long";
  if (node.state == NodeState::kUnreachable)
    return fmt::format("is out of reach for {}", TimeText(std::chrono::seconds(seconds)));
  if (!node.Connected()) return "is not connected";
  if (!node.stale.empty()) {
    return fmt::format("still ends job {} of generation {}", node.stale.begin()->job,
                       node.stale.begin()->generation);
  }
  const std::string problems = ExplainProblems(node);
  const std::string notice = ExplainNotice(node);
  return notice.empty() || problems.empty() ? problems + notice : fmt::format("{}; it {}", notice, problems);
}

}  // namespace

std::string ExplainByHand(const ByHand& run) {
  if (run.hosts.size() == 1) return fmt::format("started by hand on {}", run.hosts.front());
  return fmt::format("started by hand on {} and {}", run.hosts.front(),
                     CountText(run.hosts.size() - 1, "other host"));
}

std::string ExplainAside(const NodeRecord& node) {
  if (!node.set_aside) return "";
  const SetAside& aside = *node.set_aside;
  if (aside.by != AsideBy::kUser) return fmt::format("is set aside by imgd: {}", aside.reason);
  std::string text = fmt::format("is {} by {}", aside.drain ? "drained" : "cordoned", aside.actor);
  if (!aside.reason.empty()) text += fmt::format(": {}", aside.reason);
  if (!aside.drain) return text;
  std::set<JobId> jobs(node.holders.begin(), node.holders.end());
  jobs.erase(JobId());
  const size_t others = node.foreign.size();
  if (!jobs.empty()) return text + fmt::format(" ({} still there)", CountText(jobs.size(), "job"));
  return others == 0 ? text
                     : text + fmt::format(" ({} of another cluster still there)", CountText(others, "run"));
}

std::string ExplainProblems(const NodeRecord& node) {
  std::vector<std::string> texts;
  for (const auto& [kind, text] : node.problems) texts.push_back(text);
  return texts.empty() ? "" : fmt::format("is sick: it {}", fmt::join(texts, "; it "));
}

std::string ExplainNotice(const NodeRecord& node) {
  if (!node.notice) return "";
  std::string text =
      node.state == NodeState::kReady ? "is being taken back by the cloud" : "was taken back by the cloud";
  if (node.notice->at != WallTime{}) {
    const int64_t seconds = node.notice->at.micros / 1'000'000;
    text += fmt::format(", at {:02}:{:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
  }
  return node.notice->action.empty() ? text : fmt::format("{} ({})", text, node.notice->action);
}

std::string ExplainSilent(const JobRecord& job, const std::vector<NodeRecord>& nodes) {
  constexpr size_t kMost = 3;
  std::vector<std::string> texts;
  size_t others = 0;
  for (const auto& part : job.run.parts) {
    const auto node =
        std::lower_bound(nodes.begin(), nodes.end(), part.node,
                         [](const NodeRecord& record, const NodeId& wanted) { return record.id < wanted; });
    if (node == nodes.end() || node->id != part.node || part.Over()) continue;
    if (node->Connected() && node->state == NodeState::kReady) continue;
    if (texts.size() < kMost) {
      texts.push_back(fmt::format("node {} {}", part.node, ExplainReach(*node)));
    } else {
      ++others;
    }
  }
  if (texts.empty()) return "";
  if (others > 0) texts.push_back(fmt::format("{} can't be reached either", CountText(others, "more node")));
  return fmt::format("{}, so that nobody knows what the job does there", fmt::join(texts, ", "));
}

std::string ExplainNode(const NodeRecord& node) {
  const std::string reach = ExplainReach(node);
  if (!node.set_aside) return reach;
  const std::string aside = ExplainAside(node);
  return reach.empty() ? aside : fmt::format("{}; it {}", aside, reach);
}

}  // namespace imgd
