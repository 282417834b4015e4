#include "server/core/cluster_state.h"

#include <algorithm>
#include <filesystem>

#include "server/core/job.h"

namespace imgd {
namespace {

QueuedJob EntryOf(const JobRecord& job) {
  return {.priority = job.priority,
          .id = job.id,
          .nodes = job.nodes,
          .ranks_per_node = job.ranks_per_node,
          .not_before = job.not_before,
          // A gang of one node is only warned at submit, and goes where there is room.
          .folder = job.nodes > 1 ? std::filesystem::path(job.checkpoint_dir).parent_path().native() : "",
          .resumes_with =
              job.checkpoints.empty() || job.run.parts.empty() ? NodeId() : job.run.parts.front().node,
          .keeps_place = KeepsPlace(job.failures_in_row),
          .code = job.reason.code};
}

}  // namespace

void ClusterState::Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes) {
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
    return a.ended != b.ended ? a.ended < b.ended : a.id < b.id;
  });
  for (auto& job : jobs) {
    if (IsFinal(job.state)) ended_.push_back(job.id);
    jobs_.emplace(job.id, std::move(job));
  }
  for (auto& node : nodes) nodes_.emplace(node.id, std::move(node));
  Rebuild();
}

const JobRecord* ClusterState::FindJob(JobId id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : &job->second;
}

const NodeRecord* ClusterState::FindNode(const NodeId& id) const {
  const auto node = nodes_.find(id);
  return node == nodes_.end() ? nullptr : &node->second;
}

void ClusterState::AddJob(JobRecord job) {
  const JobId id = job.id;
  old_jobs_.emplace(id, std::nullopt);
  jobs_.emplace(id, std::move(job));
  Changed(id);
}

void ClusterState::AddNode(NodeRecord node) {
  old_nodes_.emplace(node.id, std::nullopt);
  nodes_.emplace(node.id, std::move(node));
}

JobRecord& ClusterState::EditJob(JobId id) {
  JobRecord& job = jobs_.at(id);
  if (!old_jobs_.contains(id)) old_jobs_.emplace(id, job);
  return job;
}

NodeRecord& ClusterState::EditNode(const NodeId& id) {
  NodeRecord& node = nodes_.at(id);
  if (!old_nodes_.contains(id)) old_nodes_.emplace(id, node);
  return node;
}

void ClusterState::Changed(JobId id) {
  const JobRecord& job = jobs_.at(id);
  Dequeue(id);
  if (job.state == JobState::kQueued) Enqueue(job);
  const bool was_active = active_.contains(id);
  if (HoldsDevices(job.state)) {
    if (!was_active) Hold(job);
    active_.insert(id);
  } else if (was_active) {
    Release(id);
    active_.erase(id);
  }
}

void ClusterState::SetWait(JobId id, ReasonCode code) {
  const auto priority = queued_.find(id);
  if (priority == queued_.end()) return;
  const QueuedJob key{.priority = priority->second, .id = id};
  const auto place = std::lower_bound(queue_.begin(), queue_.end(), key,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  place->code = code;
}

void ClusterState::Enqueue(const JobRecord& job) {
  const QueuedJob entry = EntryOf(job);
  const auto place = std::lower_bound(queue_.begin(), queue_.end(), entry,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  queue_.insert(place, entry);
  queued_[job.id] = job.priority;
}

void ClusterState::Dequeue(JobId id) {
  const auto priority = queued_.find(id);
  if (priority == queued_.end()) return;
  const QueuedJob key{.priority = priority->second, .id = id};
  queue_.erase(std::lower_bound(queue_.begin(), queue_.end(), key,
                                [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); }));
  queued_.erase(priority);
}

void ClusterState::Hold(const JobRecord& job) {
  for (const auto& part : job.run.parts) {
    if (!nodes_.contains(part.node)) continue;
    NodeRecord& node = EditUnstored(part.node);
    for (size_t i = 0; i < node.devices.size(); ++i) {
      if (std::find(part.devices.begin(), part.devices.end(), node.devices[i].index) != part.devices.end()) {
        node.holders[i] = job.id;
      }
    }
  }
}

void ClusterState::Release(JobId id) {
  for (const auto& part : jobs_.at(id).run.parts) {
    if (!nodes_.contains(part.node)) continue;
    auto& holders = EditUnstored(part.node).holders;
    std::replace(holders.begin(), holders.end(), id, JobId());
  }
}

std::vector<JobId> ClusterState::TouchedJobs() const {
  std::vector<JobId> out;
  for (const auto& [id, old] : old_jobs_) out.push_back(id);
  return out;
}

std::vector<NodeId> ClusterState::TouchedNodes() const {
  std::vector<NodeId> out;
  for (const auto& [id, old] : old_nodes_) out.push_back(id);
  return out;
}

void ClusterState::Commit() {
  for (const auto& [id, old] : old_jobs_) {
    const bool was_final = old && IsFinal(old->state);
    if (!was_final && IsFinal(jobs_.at(id).state)) ended_.push_back(id);
  }
  while (ended_.size() > kEndedKept) {
    jobs_.erase(ended_.front());
    ended_.pop_front();
  }
  old_jobs_.clear();
  old_nodes_.clear();
}

void ClusterState::Rollback() {
  for (auto& [id, old] : old_jobs_) {
    if (old) {
      jobs_[id] = std::move(*old);
    } else {
      jobs_.erase(id);
    }
  }
  for (auto& [id, old] : old_nodes_) {
    if (old) {
      nodes_[id] = std::move(*old);
    } else {
      nodes_.erase(id);
    }
  }
  old_jobs_.clear();
  old_nodes_.clear();
  Rebuild();
}

void ClusterState::Rebuild() {
  active_.clear();
  queue_.clear();
  queued_.clear();
  for (const auto& [id, job] : jobs_) {
    if (job.state == JobState::kQueued) {
      queue_.push_back(EntryOf(job));
      queued_[id] = job.priority;
    }
  }
  std::sort(queue_.begin(), queue_.end(), [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  for (auto& [name, node] : nodes_) node.holders.assign(node.devices.size(), JobId());
  for (const auto& [id, job] : jobs_) {
    if (!HoldsDevices(job.state)) continue;
    Hold(job);
    active_.insert(id);
  }
}

}  // namespace imgd
