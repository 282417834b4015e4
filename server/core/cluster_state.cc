#include "server/core/cluster_state.h"

#include <algorithm>
#include <filesystem>

#include "server/core/folders.h"
#include "server/core/job.h"

namespace imgd {
namespace {

/// Undoes what was done since the old values were noted, and forgets these.
template <typename Key, typename Value>
void PutBack(std::map<Key, std::optional<Value>>& old_values, std::map<Key, Value>& values) {
  for (auto& [key, old] : old_values) {
    if (old) {
      values[key] = std::move(*old);
    } else {
      values.erase(key);
    }
  }
  old_values.clear();
}

}  // namespace

QueuedJob EntryOf(const JobRecord& job) {
  return {.priority = job.priority,
          .id = job.id,
          .name = job.name,
          .nodes = job.nodes,
          .max_nodes = job.max_nodes,
          .ranks_per_node = job.ranks_per_node,
          .needs = job.needs,
          .accounts = AccountsOf(job),
          .not_before = job.not_before,
          .folder = FolderOf(job),
          .resumes_with = NodeWithCheckpoints(job),
          .keeps_place = KeepsPlace(job),
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
                           std::map<std::string, Usage> usage, std::vector<SweepRecord> sweeps,
                           std::map<std::string, Account> accounts) {
  usage_ = std::move(usage);
  accounts_ = std::move(accounts);
  for (auto& sweep : sweeps) sweeps_.emplace(sweep.id, std::move(sweep));
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
    return a.ended != b.ended ? a.ended < b.ended : a.id < b.id;
  });
  for (auto& job : jobs) {
    if (IsFinal(job.state)) ended_.push_back(job.id);
    jobs_.emplace(job.id, std::move(job));
  }
  for (auto& node : nodes) {
    NoteKind(node);
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

const SweepRecord* ClusterState::FindSweep(JobId id) const {
  const auto sweep = sweeps_.find(id);
  return sweep == sweeps_.end() ? nullptr : &sweep->second;
}

void ClusterState::AddSweep(SweepRecord sweep) {
  old_sweeps_.emplace(sweep.id, std::nullopt);
  held_back_.AddSweep(sweep);
  sweeps_.emplace(sweep.id, std::move(sweep));
}

SweepRecord& ClusterState::EditSweep(JobId id) {
  SweepRecord& sweep = sweeps_.at(id);
  if (!old_sweeps_.contains(id)) old_sweeps_.emplace(id, sweep);
  to_halve_.insert(id);
  return sweep;
}

void ClusterState::AddJob(JobRecord job) {
  const JobId id = job.id;
  old_jobs_.emplace(id, std::nullopt);
  NoteEndedBefore(jobs_.emplace(id, std::move(job)).first->second);
  Changed(id);
}

void ClusterState::AddNode(NodeRecord node) {
  old_nodes_.emplace(node.id, std::nullopt);
  NodeRecord* const added = &nodes_.emplace(node.id, std::move(node)).first->second;
  const auto place = std::lower_bound(all_nodes_.begin(), all_nodes_.end(), added,
                                      [](const NodeRecord* a, const NodeRecord* b) { return a->id < b->id; });
  all_nodes_.insert(place, added);
}

void ClusterState::DropNode(const NodeId& id) {
  std::erase(all_nodes_, &EditNode(id));
  nodes_.erase(id);
}

void ClusterState::NoteKind(NodeRecord& node) {
  node.kind = kinds_.Of(node.devices, node.labels);
  node.indexes.clear();
  for (const auto& device : node.devices) node.indexes.push_back(device.index);
  node.folders = std::make_shared<const FolderView>(ViewOf(node));
}

JobRecord& ClusterState::EditJob(JobId id) {
  JobRecord& job = jobs_.at(id);
  if (old_jobs_.contains(id)) return job;
  if (spare_.empty()) {
    old_jobs_.emplace(id, job);
    return job;
  }
  auto old = std::move(spare_.back());
  spare_.pop_back();
  old.key() = id;
  old.mapped() = job;
  old_jobs_.insert(std::move(old));
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
  Count(job);
  if (job.state != JobState::kQueued) promised_.erase(id);
  if (held_back_.Update(job)) Enqueue(job);
  LookAtWaits(job);
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
    holdings_.erase(id);
  }
}

/// What it waits for may have ended before it came.
void ClusterState::NoteEndedBefore(const JobRecord& job) {
  for (const auto& dependency : job.after) {
    const JobRecord* other = dependency.ended ? nullptr : FindJob(dependency.job);
    if (other != nullptr && IsFinal(other->state)) awaited_.insert(dependency.job);
  }
}

/// Who waits for it, or for its place, or why it waits itself.
void ClusterState::LookAtWaits(const JobRecord& job) {
  if (IsFinal(job.state) && !held_back_.After(job.id).empty()) awaited_.insert(job.id);
  if (job.sweep != JobId()) {
    if (IsFinal(job.state)) to_halve_.insert(job.sweep);
    for (JobId next = held_back_.Admit(job.sweep); next != JobId(); next = held_back_.Admit(job.sweep))
      Enqueue(jobs_.at(next));
  }
  if (job.state == JobState::kQueued && !queued_.contains(job.id)) to_explain_.insert(job.id);
}

JobId ClusterState::TakeAwaited() {
  if (awaited_.empty()) return {};
  return awaited_.extract(awaited_.begin()).value();
}

JobId ClusterState::TakeToHalve() {
  if (to_halve_.empty()) return {};
  return to_halve_.extract(to_halve_.begin()).value();
}

JobId ClusterState::TakeHeldBack() {
  if (to_explain_.empty()) return {};
  return to_explain_.extract(to_explain_.begin()).value();
}

void ClusterState::Count(const JobRecord& job) {
  const bool was = counted_.contains(job.id);
  // Who pauses what waits does not get room for more.
  const bool waits = job.state == JobState::kQueued || job.state == JobState::kPaused;
  if (was == waits) return;
  for (const auto& account : AccountsOf(job)) {
    if (waits) {
      ++queued_of_[account];
    } else if (--queued_of_.at(account) == 0) {
      queued_of_.erase(account);
    }
  }
  if (waits) {
    counted_.insert(job.id);
  } else {
    counted_.erase(job.id);
  }
}

void ClusterState::SetGrowth(JobId id, std::vector<Part> parts) {
  JobRecord& job = EditJob(id);
  Release(id);
  job.run.grows_to = std::move(parts);
  Hold(job);
}

std::optional<WallTime> ClusterState::SetRanking(Ranking ranking) {
  const bool turns_change = ranking.turns != ranking_.turns;
  ranking_ = std::move(ranking);
  const Duration aging = ranking_.aging;
  std::optional<WallTime> next;
  queue_.RankAnew([&](QueuedJob& job) {
    const int aged = StepsOfAge(job.waits_since, aging, ranking_.at);
    const bool change = turns_change || aged != job.aged;
    if (change) {
      ranking_.Rank(jobs_.at(job.id), job);
      queued_.at(job.id) = KeyOf(jobs_.at(job.id));
    }
    if (aging <= Duration::zero()) return change;
    const auto step = std::chrono::duration_cast<std::chrono::microseconds>(aging).count();
    const WallTime gains{job.waits_since.micros + (aged + 1) * step};
    next = std::min(next.value_or(gains), gains);
    return change;
  });
  return next;
}

uint32_t ClusterState::QueuedOf(const std::string& account) const {
  const auto count = queued_of_.find(account);
  return count == queued_of_.end() ? 0 : count->second;
}

void ClusterState::AddUsage(const std::string& who, double device_seconds, WallTime now, Duration half_life) {
  const auto known = usage_.find(who);
  old_usage_.try_emplace(who, known == usage_.end() ? std::nullopt : std::optional(known->second));
  usage_[who].Add(device_seconds, now, half_life);
}

void ClusterState::DropUsage(const std::string& who) {
  const auto known = usage_.find(who);
  if (known == usage_.end()) return;
  old_usage_.try_emplace(who, known->second);
  usage_.erase(known);
}

Account& ClusterState::EditAccount(const std::string& account) {
  const auto known = accounts_.find(account);
  old_accounts_.try_emplace(account, known == accounts_.end() ? std::nullopt : std::optional(known->second));
  return accounts_[account];
}

void ClusterState::DropAccount(const std::string& account) {
  const auto known = accounts_.find(account);
  if (known == accounts_.end()) return;
  old_accounts_.try_emplace(account, known->second);
  accounts_.erase(known);
}

QueuedJob ClusterState::QueueEntryOf(const JobRecord& job) {
  QueuedJob entry = EntryOf(job);
  entry.needs = needs_.Of(entry.needs);
  entry.accounts = account_names_.Of(entry.accounts);
  ranking_.Rank(job, entry);
  entry.promised = promised_.contains(job.id);
  return entry;
}

void ClusterState::Promise(JobId id) {
  const auto key = queued_.find(id);
  if (key == queued_.end() || !promised_.insert(id).second) return;
  if (const auto place = PlaceIn(queue(), key->second)) queue_.At(*place).promised = true;
}

void ClusterState::Enqueue(const JobRecord& job) {
  queue_.Insert(QueueEntryOf(job));
  queued_[job.id] = KeyOf(job);
}

void ClusterState::Dequeue(JobId id) {
  const auto key = queued_.find(id);
  if (key == queued_.end()) return;
  queue_.Erase(key->second);
  queued_.erase(key);
}

void ClusterState::Hold(const JobRecord& job) {
  Holding& holding = holdings_[job.id] = {.job = &job, .accounts = account_names_.Of(AccountsOf(job))};
  for (const auto& part : job.run.Held()) {
    const auto known = nodes_.find(part.node);
    const bool all = part.whole && known != nodes_.end();
    holding.devices += static_cast<uint32_t>(all ? known->second.devices.size() : part.devices.size());
    if (known == nodes_.end()) continue;
    NodeRecord& node = known->second;
    for (size_t i = 0; i < node.devices.size(); ++i) {
      if (part.Takes(node.devices[i].index)) node.holders[i] = job.id;
    }
  }
}

void ClusterState::SetDevices(const NodeId& id, const std::vector<Device>& devices) {
  NodeRecord& node = EditNode(id);
  node.devices = devices;
  node.holders.assign(devices.size(), JobId());
  for (const JobId job : active_) Hold(jobs_.at(job));
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

ClusterState::Change ClusterState::ChangeOf(JobId id) const {
  const auto old = old_jobs_.find(id);
  if (old == old_jobs_.end()) return Change::kNothing;
  if (!old->second) return Change::kMore;
  const JobRecord& now = jobs_.at(id);
  if (*old->second == now) return Change::kNothing;
  JobRecord otherwise = *old->second;
  otherwise.reason = now.reason;
  return otherwise == now ? Change::kReason : Change::kMore;
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

std::vector<std::string> ClusterState::TouchedAccounts() const {
  std::vector<std::string> out;
  for (const auto& [account, old] : old_accounts_) out.push_back(account);
  return out;
}

void ClusterState::Commit() {
  for (const auto& [id, old] : old_jobs_) {
    const bool was_final = old && IsFinal(old->state);
    const bool is_final = IsFinal(jobs_.at(id).state);
    if (!was_final && is_final) ended_.push_back(id);
    // One that had only fallen silent is back.
    if (was_final && !is_final) std::erase(ended_, id);
    const JobId sweep = jobs_.at(id).sweep;
    if (is_final && sweep != JobId() && !held_back_.IsOpen(sweep)) {
      held_back_.DropSweep(sweep);
      sweeps_.erase(sweep);
    }
  }
  while (ended_.size() > kEndedKept) {
    jobs_.erase(ended_.front());
    ended_.pop_front();
  }
  while (!old_jobs_.empty() && spare_.size() < kSpareKept)
    spare_.push_back(old_jobs_.extract(old_jobs_.begin()));
  old_jobs_.clear();
  old_nodes_.clear();
  old_usage_.clear();
  old_accounts_.clear();
  old_sweeps_.clear();
}

void ClusterState::DropEnded(JobId id) {
  if (std::erase(ended_, id) > 0) jobs_.erase(id);
}

void ClusterState::Rollback() {
  PutBack(old_sweeps_, sweeps_);
  PutBack(old_usage_, usage_);
  PutBack(old_accounts_, accounts_);
  PutBack(old_jobs_, jobs_);
  PutBack(old_nodes_, nodes_);
  Rebuild();
}

void ClusterState::Rebuild() {
  active_.clear();
  holdings_.clear();
  by_hand_.clear();
  RebuildQueue();
  ListNodes();
  for (NodeRecord* const node : all_nodes_) node->holders.assign(node->devices.size(), JobId());
  for (const auto& [id, job] : jobs_) {
    if (job.by_hand && job.IsActive()) by_hand_.insert(id);
    if (!job.HoldsDevices()) continue;
    Hold(job);
    active_.insert(id);
  }
}

void ClusterState::ListNodes() {
  all_nodes_.clear();
  for (auto& [id, node] : nodes_) all_nodes_.push_back(&node);
}

/// Those who have their places in a sweep keep them: who runs, and who did not wait for one.
void ClusterState::RebuildQueue() {
  queue_.Clear();
  queued_.clear();
  promised_.clear();
  queued_of_.clear();
  counted_.clear();
  awaited_.clear();
  to_explain_.clear();
  to_halve_.clear();
  held_back_.Clear();
  for (const auto& [id, sweep] : sweeps_) {
    held_back_.AddSweep(sweep);
    to_halve_.insert(id);
  }
  std::vector<const JobRecord*> had_places, others;
  for (const auto& [id, job] : jobs_) {
    Count(job);
    if (job.state != JobState::kQueued) {
      held_back_.Update(job);
    } else {
      (job.reason.code == ReasonCode::kSweepFull ? others : had_places).push_back(&job);
    }
  }
  had_places.insert(had_places.end(), others.begin(), others.end());
  for (const JobRecord* job : had_places) {
    if (held_back_.Update(*job)) Enqueue(*job);
    const JobId admitted = held_back_.Admit(job->sweep);
    if (admitted != JobId()) Enqueue(jobs_.at(admitted));
  }
  for (const auto& [id, job] : jobs_) {
    NoteEndedBefore(job);
    if (job.state == JobState::kQueued && !queued_.contains(id)) to_explain_.insert(id);
  }
}

}  // namespace imgd
