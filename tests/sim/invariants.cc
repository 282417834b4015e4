#include "tests/sim/invariants.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

/// All nodes of such a gang have to see one storage.
bool SharesStorage(const Submission& asked) {
  return std::max(asked.nodes, asked.max_nodes) > 1 && !asked.checkpoint_parent.starts_with("s3:");
}

void NoteEvent(Ledger& ledger, const AppendEvent& event, Instant now) {
  Ledger::Job& job = ledger.jobs[event.job];
  if (event.from == event.to && !event.first) return;
  if (event.to == JobState::kStarting) job.held_since = job.kept_since = now;
  const bool was_active = !event.first && HoldsDevices(event.from);
  if (was_active && !HoldsDevices(event.to)) {
    job.held += now - job.held_since;
    ledger.longest_hold = std::max(ledger.longest_hold, now - job.held_since);
  }
  const bool counts = event.reason.code != ReasonCode::kNodeLost &&
                      event.reason.code != ReasonCode::kCollectiveBroken && !IsGivenBack(event.reason.code);
  if (was_active && event.to == JobState::kQueued && counts) ++job.own_failures;
  if (was_active && event.to == JobState::kQueued && !IsGivenBack(event.reason.code)) ++job.in_row;
}

void NoteActions(World& world, const Batch& batch) {
  Ledger& ledger = world.ledger;
  for (const auto& action : batch.actions) {
    if (const auto* event = std::get_if<AppendEvent>(&action)) {
      NoteEvent(ledger, *event, world.time.now().steady);
    } else if (const auto* saved = std::get_if<SaveCheckpoint>(&action)) {
      Ledger::Job& job = ledger.jobs[saved->job];
      std::erase(job.accepted, saved->checkpoint.path);
      job.accepted.insert(job.accepted.begin(), saved->checkpoint.path);
      job.newest_accepted = saved->checkpoint.generation;
      job.kept_since = world.time.now().steady;
      job.in_row = 0;
    } else if (const auto* end = std::get_if<AppendRankExit>(&action)) {
      const JobRecord* job = world.daemon.reactor().state().FindJob(end->run.job);
      const bool known = job == nullptr || job->kind != imgd::JobKind::kCommand;
      if (known && end->exit.exit_code == 2 && end->exit.signal == 0 && !end->exit.by_us)
        ledger.jobs[end->run.job].bad_input = true;
    }
  }
}

void NoteJobs(World& world, const Batch& batch) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    if (job == nullptr) continue;
    Ledger::Job& known = world.ledger.jobs[id];
    known.state = job->state;
    known.generation = job->generation;
    known.not_before = job->not_before;
    known.failures = job->failures;
    known.preempted = job->HoldsDevices() && job->run.stop == StopFor::kPreempt;
    known.gives_back = job->HoldsDevices() && job->run.stop == StopFor::kNotice;
    known.grows = job->HoldsDevices() && job->run.stop == StopFor::kGrow;
    known.avoid = job->avoid;
    if (!job->HoldsDevices()) continue;
    const NodeRecord* first = world.daemon.reactor().state().FindNode(job->run.parts.front().node);
    if (first != nullptr) known.storage = first->filesystem_id;
  }
}

void NoteNodes(World& world) {
  auto at = world.ledger.nodes.begin();
  for (const NodeRecord* const node : world.daemon.reactor().state().all_nodes())
    ValueAt(world.ledger.nodes, at, node->id) = node->state;
}

}  // namespace

const std::vector<Invariant>& Invariants() {
  static const std::vector<Invariant> all = [] {
    std::vector<Invariant> rules = JobInvariants();
    rules.insert(rules.end(), QueueInvariants().begin(), QueueInvariants().end());
    rules.insert(rules.end(), ElasticInvariants().begin(), ElasticInvariants().end());
    rules.insert(rules.end(), WaitInvariants().begin(), WaitInvariants().end());
    rules.insert(rules.end(), NoticeInvariants().begin(), NoticeInvariants().end());
    rules.insert(rules.end(), RetryInvariants().begin(), RetryInvariants().end());
    rules.insert(rules.end(), QuotaInvariants().begin(), QuotaInvariants().end());
    rules.insert(rules.end(), PeopleInvariants().begin(), PeopleInvariants().end());
    rules.insert(rules.end(), PreemptionInvariants().begin(), PreemptionInvariants().end());
    rules.insert(rules.end(), PlaceInvariants().begin(), PlaceInvariants().end());
    return rules;
  }();
  return all;
}

void Check(World& world, const Batch& batch) {
  ++world.ledger.checks;
  // Actions first: most rules compare with what they add up to, and with the states before.
  NoteActions(world, batch);
  for (const auto& rule : Invariants()) rule.check(world, batch, rule.name);
  NoteJobs(world, batch);
  if (batch.nodes_touched) NoteNodes(world);
}

void CheckAtTheEnd(World& world) {
  // What looks at every 4th, 8th, 16th... looks at the 64th too; and one at the 16th after it.
  constexpr uint64_t kAll = 64;
  uint64_t& checks = world.ledger.checks;
  const uint64_t next = (checks / kAll + 1) * kAll;
  for (const uint64_t number : {next, next + kAll / 4}) {
    checks = number - 1;
    Check(world, {.actions = {}, .touched = {}});
  }
}

bool IsGivenBack(ReasonCode code) {
  return code == ReasonCode::kPreempted || code == ReasonCode::kPausedByUser ||
         code == ReasonCode::kMovedByUser || code == ReasonCode::kNodeDrained || code == ReasonCode::kGrows ||
         code == ReasonCode::kSpotNotice;
}

bool EndedToGrow(const Batch& batch, JobId job) {
  return std::any_of(batch.actions.begin(), batch.actions.end(), [job](const Action& action) {
    const auto* event = std::get_if<AppendEvent>(&action);
    return event != nullptr && event->job == job && event->from != event->to &&
           event->to == JobState::kQueued && event->reason.code == ReasonCode::kGrows;
  });
}

std::vector<uint32_t> DevicesOf(const World& world, const Part& part) {
  const NodeRecord* node = part.whole ? world.daemon.reactor().state().FindNode(part.node) : nullptr;
  if (node == nullptr) return part.devices;
  std::vector<uint32_t> all;
  for (const auto& device : node->devices) all.push_back(device.index);
  return all;
}

bool SharesDevices(const World& world, const std::vector<Part>& some, const std::vector<Part>& others) {
  std::set<std::pair<NodeId, uint32_t>> held;
  for (const auto& part : some) {
    for (const uint32_t device : DevicesOf(world, part)) held.emplace(part.node, device);
  }
  return std::any_of(others.begin(), others.end(), [&](const Part& part) {
    const auto devices = DevicesOf(world, part);
    return std::any_of(devices.begin(), devices.end(), [&](uint32_t device) {
      return held.contains({part.node, device});
    });
  });
}

const JobRecord* StartedBy(const World& world, const Action& action) {
  const auto* event = std::get_if<AppendEvent>(&action);
  if (event == nullptr || event->first || event->to != JobState::kStarting || event->from == event->to)
    return nullptr;
  const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
  const bool is =
      job != nullptr && !job->by_hand && job->HoldsDevices() && job->generation == event->generation;
  return is ? job : nullptr;
}

bool IsTied(const World& world, const JobRecord& job) {
  return SharesStorage(world.truths.at(job.name).submission);
}

bool HasRoomOn(const World& world, const JobRecord& job, const Space& node) {
  return HasRoomOn(world.truths.at(job.name).submission.needs, job, node);
}

bool HasRoomOn(const Needs& needs, const JobRecord& job, const Space& node) {
  return node.devices >= job.ranks_per_node && !job.avoid.contains(node.node->id) &&
         NodeDoes(needs, *node.node) && !(needs.whole_nodes && node.devices < node.node->devices.size());
}

bool Fits(const World& world, const JobRecord& job, const std::vector<Space>& space) {
  const Submission& asked = world.truths.at(job.name).submission;
  const bool tied = SharesStorage(asked);
  std::string_view wanted;
  if (tied && !job.checkpoints.empty() && !job.run.parts.empty()) {
    const NodeRecord* last = world.daemon.reactor().state().FindNode(job.run.parts.front().node);
    if (last != nullptr) wanted = last->filesystem_id;
  }
  std::vector<std::pair<std::string_view, uint32_t>> storages;  // few
  for (const auto& node : space) {
    if (!HasRoomOn(asked.needs, job, node)) continue;
    const std::string_view storage = tied ? std::string_view(node.node->filesystem_id) : "";
    if (!wanted.empty() && storage != wanted) continue;
    auto known =
        std::find_if(storages.begin(), storages.end(), [&](const auto& s) { return s.first == storage; });
    if (known == storages.end()) known = storages.insert(storages.end(), {storage, 0});
    if (++known->second >= job.nodes) return true;
  }
  return false;
}

std::set<std::pair<NodeId, uint32_t>> KeptForGrowth(const World& world) {
  std::set<std::pair<NodeId, uint32_t>> kept;
  const auto& state = world.daemon.reactor().state();
  for (const auto& [id, holding] : state.holdings()) {
    for (const auto& part : holding.job->run.grows_to) {
      for (const uint32_t device : DevicesOf(world, part)) {
        if (!world.ledger.holders.contains({part.node, device})) kept.insert({part.node, device});
      }
    }
  }
  return kept;
}

/// How many devices of nodes are nobody else's though no run has them: all of a node that a job has for
/// itself.
std::map<NodeId, size_t> KeptOf(const World& world) {
  constexpr size_t kAll = 1U << 16;
  std::map<NodeId, size_t> kept;
  for (const auto& [node, device] : KeptForGrowth(world)) ++kept[node];
  for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
    for (const auto& part : holding.job->run.Held()) {
      if (part.whole) kept[part.node] = kAll;
    }
  }
  return kept;
}

/// Devices of the node that another cluster's run has, and none of ours.
size_t ForeignOf(const World& world, const NodeRecord& node) {
  if (node.foreign.empty()) return 0;
  return static_cast<size_t>(
      std::count_if(node.devices.begin(), node.devices.end(), [&](const Device& device) {
        return node.ForeignHolder(device.index) && !world.ledger.holders.contains({node.id, device.index});
      }));
}

const NodesNow& LookAtNodes(World& world) {
  Ledger& ledger = world.ledger;
  NodesNow& now = ledger.nodes_now;
  if (now.check == ledger.checks) return now;
  now.check = ledger.checks;
  now.space.clear();
  now.all_there = true;
  now.digest = 0;
  const auto kept = KeptOf(world);
  auto at = ledger.held.begin();
  for (const NodeRecord* const each : world.daemon.reactor().state().all_nodes()) {
    const NodeRecord& node = *each;
    const bool in_doubt = node.set_aside || !node.problems.empty() || node.notice;
    const bool usable =
        node.session != 0 && node.state == NodeState::kReady && node.stale.empty() && !in_doubt;
    const bool out = node.state == NodeState::kLost || in_doubt;
    const size_t all = node.devices.size();
    now.all_there = now.all_there && usable;
    const size_t says = (((all << 8) + node.foreign.size()) << 2) + (usable ? 1 : 0) + (out ? 2 : 0);
    now.digest = (now.digest ^ says) * 0x100000001b3;  // as FNV-1a has it, node by node
    if (!usable) continue;
    size_t taken = ValueAt(ledger.held, at, node.id) + ForeignOf(world, node);
    if (const auto more = kept.find(node.id); more != kept.end()) taken += more->second;
    now.space.push_back({.node = &node, .devices = static_cast<uint32_t>(all - std::min(all, taken))});
  }
  return now;
}

const std::vector<Space>& FreeSpace(World& world) { return LookAtNodes(world).space; }

bool AllNodesAreThere(World& world) { return LookAtNodes(world).all_there; }

}  // namespace imgd::sim
