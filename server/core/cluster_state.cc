#include "server/core/cluster_state.h"

#include <algorithm>
#include <filesystem>

#include "server/core/folders.h"
#include "server/core/job.h"

namespace imgd {
std::vector<std::string> AccountsOf(const JobRecord& job) {
  std::vector<std::string> accounts = {"user " + job.owner};
  if (!job.project.empty()) accounts.push_back("project " + job.project);
  return accounts;
}

QueuedJob EntryOf(const JobRecord& job) {
  return {.priority = job.priority,
          .id = job.id,
          .nodes = job.nodes,
          .max_nodes = job.max_nodes,
          .ranks_per_node = job.ranks_per_node,
          .needs = job.needs,
          .accounts = AccountsOf(job),
          .not_before = job.not_before,
          .folder = FolderOf(job),
          .resumes_with = NodeWithCheckpoints(job),
          .keeps_place = KeepsPlace(job.failures_in_row),
          .most = LongestStart(job).value_or(Duration::zero()),
          .avoid = job.avoid,
          .code = job.reason.code,
          .regroups = job.reason.code == ReasonCode::kGrows && !job.run.grows_to.empty()};
}

std::string FolderOf(const JobRecord& job) {
  // A gang of one node is only warned at submit, and goes where there is room; a bucket is seen from
  // anywhere.
  if (job.MostNodes() == 1 || IsInBucket(job.checkpoint_dir)) return "";
  return std::filesystem::path(job.checkpoint_dir).parent_path().native();
}

NodeId NodeWithCheckpoints(const JobRecord& job) {
  return job.checkpoints.empty() || job.run.parts.empty() ? NodeId() : job.run.parts.front().node;
}

void ClusterState::Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes,
                           std::map<std::string, Usage> usage) {
  usage_ = std::move(usage);
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
    return a.ended != b.ended ? a.ended < b.ended : a.id < b.id;
  });
  for (auto& job : jobs) {
    if (IsFinal(job.state)) ended_.push_back(job.id);
    jobs_.emplace(job.id, std::move(job));
  }
  for (auto& node : nodes) {
    node.NoteKind();
    nodes_.emplace(node.id, std::move(node));
  }
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
  if (job.by_hand && job.IsActive()) {
    by_hand_.insert(id);
  } else {
    by_hand_.erase(id);
  }
  if (job.HoldsDevices()) {
    if (!was_active) Hold(job);
    active_.insert(id);
  } else if (was_active) {
    Release(id);
    active_.erase(id);
  }
}

void ClusterState::SetGrowth(JobId id, std::vector<Part> parts) {
  JobRecord& job = EditJob(id);
  Release(id);
  job.run.grows_to = std::move(parts);
  Hold(job);
}

void ClusterState::SetWait(JobId id, ReasonCode code) {
  const auto key = queued_.find(id);
  if (key == queued_.end()) return;
  queue_[*PlaceIn(queue_, key->second)].code = code;
}

QueuedJob ClusterState::KeyOf(const JobRecord& job) const {
  const auto turn = turns_.find(job.owner);
  return {.priority = job.priority, .id = job.id, .turn = turn == turns_.end() ? 0 : turn->second};
}

void ClusterState::SetTurns(std::map<std::string, uint32_t> turns) {
  if (turns == turns_) return;
  turns_ = std::move(turns);
  for (auto& job : queue_) {
    job.turn = KeyOf(jobs_.at(job.id)).turn;
    queued_.at(job.id).turn = job.turn;
  }
  std::sort(queue_.begin(), queue_.end(), [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
}

uint32_t ClusterState::QueuedOf(const std::string& account) const {
  const auto count = queued_of_.find(account);
  return count == queued_of_.end() ? 0 : count->second;
}

void ClusterState::AddUsage(const std::string& owner, double device_seconds, WallTime now,
                            Duration half_life) {
  const auto known = usage_.find(owner);
  old_usage_.try_emplace(owner, known == usage_.end() ? std::nullopt : std::optional(known->second));
  usage_[owner].Add(device_seconds, now, half_life);
}

void ClusterState::Enqueue(const JobRecord& job) {
  QueuedJob entry = EntryOf(job);
  entry.turn = KeyOf(job).turn;
  const auto place = std::lower_bound(queue_.begin(), queue_.end(), entry,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  for (const auto& account : entry.accounts) ++queued_of_[account];
  queue_.insert(place, std::move(entry));
  queued_[job.id] = KeyOf(job);
}

void ClusterState::Dequeue(JobId id) {
  const auto key = queued_.find(id);
  if (key == queued_.end()) return;
  const auto place = queue_.begin() + static_cast<std::ptrdiff_t>(*PlaceIn(queue_, key->second));
  for (const auto& account : place->accounts) {
    if (--queued_of_.at(account) == 0) queued_of_.erase(account);
  }
  queue_.erase(place);
  queued_.erase(key);
}

void ClusterState::Hold(const JobRecord& job) {
  for (const auto& part : job.run.Held()) {
    if (!nodes_.contains(part.node)) continue;
    NodeRecord& node = EditUnstored(part.node);
    for (size_t i = 0; i < node.devices.size(); ++i) {
      if (part.whole ||
          std::find(part.devices.begin(), part.devices.end(), node.devices[i].index) != part.devices.end()) {
        node.holders[i] = job.id;
      }
    }
  }
}

void ClusterState::Release(JobId id) {
  for (const auto& part : jobs_.at(id).run.Held()) {
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

std::vector<std::string> ClusterState::TouchedUsage() const {
  std::vector<std::string> out;
  for (const auto& [owner, old] : old_usage_) out.push_back(owner);
  return out;
}

void ClusterState::Commit() {
  for (const auto& [id, old] : old_jobs_) {
    const bool was_final = old && IsFinal(old->state);
    const bool is_final = IsFinal(jobs_.at(id).state);
    if (!was_final && is_final) ended_.push_back(id);
    // One that had only fallen silent is back.
    if (was_final && !is_final) std::erase(ended_, id);
  }
  while (ended_.size() > kEndedKept) {
    jobs_.erase(ended_.front());
    ended_.pop_front();
  }
  old_jobs_.clear();
  old_nodes_.clear();
  old_usage_.clear();
}

void ClusterState::Rollback() {
  for (const auto& [owner, old] : old_usage_) {
    if (old) {
      usage_[owner] = *old;
    } else {
      usage_.erase(owner);
    }
  }
  old_usage_.clear();
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
  by_hand_.clear();
  queue_.clear();
  queued_.clear();
  queued_of_.clear();
  for (const auto& [id, job] : jobs_) {
    if (job.state == JobState::kQueued) {
      queue_.push_back(EntryOf(job));
      queue_.back().turn = KeyOf(job).turn;
      queued_[id] = KeyOf(job);
      for (const auto& account : queue_.back().accounts) ++queued_of_[account];
    }
  }
  std::sort(queue_.begin(), queue_.end(), [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  for (auto& [name, node] : nodes_) node.holders.assign(node.devices.size(), JobId());
  for (const auto& [id, job] : jobs_) {
    if (job.by_hand && job.IsActive()) by_hand_.insert(id);
    if (!job.HoldsDevices()) continue;
    Hold(job);
    active_.insert(id);
  }
}

}  // namespace imgd
