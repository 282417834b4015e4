// What must always hold for where gangs go, for who goes first by age, and for what is forecast.
#include <algorithm>
#include <array>
#include <set>

#include "server/core/forecast.h"
#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::seconds;

/// By what the job waits: the steps of its age as the simulator counts them, at this time more or less.
int RankOf(const World& world, const JobRecord& job, Duration more) {
  if (world.shape.aging == Duration::zero()) return job.priority;
  const Duration waited = std::chrono::microseconds(world.time.now().wall.micros - job.submitted.micros) -
                          std::chrono::milliseconds(job.held_ms) + more;
  return job.priority + static_cast<int>(std::max(waited, Duration::zero()) / world.shape.aging);
}

/// One of its nodes does for the other job too. What its quota keeps a job off that wants nodes for itself is
/// looked at elsewhere.
bool CouldUse(const World& world, const QueuedJob& entry, const JobRecord& started) {
  const auto& state = world.daemon.reactor().state();
  if (entry.needs->whole_nodes && HasQuotas(world, *state.FindJob(entry.id))) return false;
  return std::any_of(started.run.parts.begin(), started.run.parts.end(), [&](const Part& part) {
    const NodeRecord* node = state.FindNode(part.node);
    return node != nullptr && node->devices.size() >= entry.ranks_per_node && NodeDoes(entry.needs, *node) &&
           !entry.avoid.contains(part.node);
  });
}

/// Who is placed, and not beside what is kept for the first, comes before all who wait for devices: by its
/// priority with a step for each `aging` that it has waited. So of jobs that came (P - p + 1) * aging later
/// than one of priority p none of priority P goes before it.
void TheOlderGoesFirst(World& world, const Batch& batch, const char* name) {
  const auto& reactor = world.daemon.reactor();
  if (reactor.reserved().empty() || reactor.WantsToSchedule()) return;
  for (const auto& action : batch.actions) {
    const JobRecord* started = StartedBy(world, action);
    if (started == nullptr || std::get<AppendEvent>(action).reason.code != ReasonCode::kPlaced) continue;
    // Before the one that has devices reserved there may be some for which none can be, for their nodes are
    // lost.
    const auto& queue = reactor.state().queue();
    auto at = std::find_if(queue.begin(), queue.end(), [&reactor](const QueuedJob& entry) {
      return entry.id == reactor.reserved().front().job;
    });
    if (EndedToGrow(batch, started->id)) continue;
    for (; at != queue.end(); ++at) {
      const QueuedJob& entry = *at;
      if (entry.code != ReasonCode::kWaitsForDevices) continue;
      // For those who wait for nodes that may never return nothing is kept, nor where too few are left of
      // those that it does not avoid.
      const bool may_be_held = !entry.IsChoosy() && AllNodesAreThere(world);
      if (!may_be_held && ReservationOf(reactor.reserved(), entry.id) == nullptr) continue;
      const JobRecord& job = *reactor.state().FindJob(entry.id);
      if (job.not_before > world.time.now().steady || !CouldUse(world, entry, *started)) continue;
      if (RankOf(world, *started, seconds(1)) >= RankOf(world, job, -seconds(1))) continue;
      world.Break(name,
                  fmt::format("job {} of rank {} was placed before job {} of rank {}", started->id,
                              RankOf(world, *started, seconds(0)), job.id, RankOf(world, job, seconds(0))));
    }
  }
}

/// The queue is in the order of ranks, also when nothing but time has passed.
void TheQueueIsInOrder(World& world, const Batch&, const char* name) {
  const Instant now = world.time.now().steady;
  const auto& reactor = world.daemon.reactor();
  if (!world.ledger.Looks(16) || world.daemon.disturbed() > now - seconds(10)) return;
  const JobRecord* before = nullptr;
  for (const auto& entry : reactor.state().queue()) {
    const JobRecord& job = *reactor.state().FindJob(entry.id);
    if (before != nullptr && RankOf(world, *before, seconds(1)) < RankOf(world, job, -seconds(10)))
      world.Break(
          name, fmt::format("job {} of rank {} is behind job {} of rank {}", job.id,
                            RankOf(world, job, seconds(0)), before->id, RankOf(world, *before, seconds(0))));
    before = &job;
  }
}

constexpr std::array<const char*, 3> kNarrowestFirst = {"placement_group", "fabric", "zone"};

std::string LabelOf(const NodeRecord& node, const char* name) {
  const auto label = node.labels.find(name);
  return label == node.labels.end() ? "" : label->second;
}

/// For each value of the label how many of the nodes could have a part of the gang, but for `avoided` ones.
std::map<std::string, uint32_t> Sets(const World& world, const JobRecord& job,
                                     const std::vector<Space>& space, const std::set<NodeId>& avoided,
                                     const char* label) {
  const Needs& needs = world.truths.at(job.name).submission.needs;
  const NodeRecord* first = world.daemon.reactor().state().FindNode(job.run.parts.front().node);
  std::map<std::string, uint32_t> sets;
  for (const auto& node : space) {
    const std::string value = LabelOf(*node.node, label);
    if (value.empty() || node.devices < job.ranks_per_node || avoided.contains(node.node->id)) continue;
    if (!NodeDoes(needs, *node.node)) continue;
    if (needs.whole_nodes && node.devices < node.node->devices.size()) continue;
    if (IsTied(world, job) && node.node->filesystem_id != first->filesystem_id) continue;
    ++sets[value];
  }
  return sets;
}

/// Adds the devices of the job's parts to what is free, or takes them from it.
void Count(const World& world, const JobRecord& job, bool free, std::vector<Space>& space) {
  for (const auto& part : job.run.parts) {
    const auto devices = static_cast<uint32_t>(DevicesOf(world, part).size());
    for (auto& node : space) {
      if (node.node->id == part.node) node.devices += free ? devices : -devices;
    }
  }
}

/// Why it is not as close as it could be; empty where it is.
std::string WhyNotClose(const World& world, const JobRecord& job, const std::vector<Space>& space,
                        const std::set<NodeId>& avoided) {
  const auto& state = world.daemon.reactor().state();
  for (const char* label : kNarrowestFirst) {
    uint32_t least = 0;
    const auto sets = Sets(world, job, space, avoided, label);
    for (const auto& [value, count] : sets) {
      if (count >= job.run.parts.size() && (least == 0 || count < least)) least = count;
    }
    if (least == 0) continue;
    std::set<std::string> values;
    for (const auto& part : job.run.parts) values.insert(LabelOf(*state.FindNode(part.node), label));
    if (values.size() > 1 || values.begin()->empty() || sets.at(*values.begin()) > least)
      return fmt::format("job {} of {} nodes is in {} sets of one {}, where one of {} nodes holds it", job.id,
                         job.run.parts.size(), values.size(), label, least);
    return "";
  }
  return "";
}

/// `space`: what was free when it was placed. Where the place that it would have anyway has none of the nodes
/// that it avoids, it may have that one.
void GangIsClose(World& world, const JobRecord& job, const std::vector<Space>& space, const char* name) {
  const std::string why = WhyNotClose(world, job, space, job.run.avoided);
  if (!why.empty() && !WhyNotClose(world, job, space, {}).empty()) world.Break(name, why);
}

/// Something was reserved on whatever nodes when the job got its own.
bool StartedBesideReserved(const World& world, const JobRecord& job) {
  const auto& reactor = world.daemon.reactor();
  if (reactor.reserved().empty()) return false;
  const JobRecord& first = *reactor.state().FindJob(reactor.reserved().front().job);
  return reactor.state().KeyOf(first).Before(reactor.state().KeyOf(job));
}

/// Those that start in this commit, in the order in which they got their nodes; nothing where something else
/// happened too, or where one got its nodes beside what is kept for others, so that what was free is not
/// known.
std::vector<const JobRecord*> StartedOneAfterTheOther(const World& world, const Batch& batch) {
  std::vector<const JobRecord*> started;
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->from == event->to || event->to == JobState::kQueued) continue;
    if (event->to != JobState::kStarting) return {};
    const JobRecord* job = StartedBy(world, action);
    if (job == nullptr || event->reason.code != ReasonCode::kPlaced || StartedBesideReserved(world, *job))
      return {};
    if (EndedToGrow(batch, job->id) || HasQuotas(world, *job)) return {};
    started.push_back(job);
  }
  return started;
}

/// A gang that one set of close nodes holds is in one, of the narrowest kind, and in no larger one than it
/// must.
void GangsAreClose(World& world, const Batch& batch, const char* name) {
  const auto& reactor = world.daemon.reactor();
  if (!world.shape.kinds_of_nodes || reactor.WantsToSchedule() || batch.nodes_touched) return;
  const auto started = StartedOneAfterTheOther(world, batch);
  const auto has_parts = [](const JobRecord* job) { return job->run.parts.size() > 1; };
  if (std::none_of(started.begin(), started.end(), has_parts)) return;
  if (!reactor.MakeSnapshot(world.time.now()).retrying.empty()) return;
  auto space = FreeSpace(world);
  for (const JobRecord* job : started) Count(world, *job, true, space);
  for (const JobRecord* job : started) {
    if (has_parts(job)) GangIsClose(world, *job, space, name);
    Count(world, *job, false, space);
  }
}

/// All devices of the cluster are too few for both at once.
bool ExcludeEachOther(const World& world, const JobRecord& a, const JobRecord& b) {
  size_t devices = 0;
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) devices += node.devices.size();
  return devices < size_t{a.nodes} * a.ranks_per_node + size_t{b.nodes} * b.ranks_per_node;
}

/// What is forecast is not past, nor before the job may start; for the job that has devices reserved it is
/// when these are free; and who can't run beside the one before it starts when that one has ended.
void ForecastsAreConsistent(World& world, const Batch&, const char* name) {
  const auto& reactor = world.daemon.reactor();
  const auto& queue = reactor.state().queue();
  if (!world.ledger.Looks(32) || queue.empty() || reactor.WantsToSchedule()) return;
  const Instant now = world.time.now().steady;
  const Snapshot cluster = reactor.MakeSnapshot(world.time.now());
  std::optional<Instant> before;
  const auto starts = ForecastStarts(cluster, queue, 3);
  for (size_t place = 0; place < starts.size(); ++place) {
    const QueuedJob& entry = queue[place];
    const auto start = starts[place];
    const bool due = entry.not_before != Instant{} && entry.not_before <= now;  // and it is not noticed yet
    if (start && !due && (*start < now || *start < entry.not_before))
      world.Break(name, fmt::format("job {} is forecast for a time at which it can't start", entry.id));
    const Reservation* const reserved = ReservationOf(reactor.reserved(), entry.id);
    const bool first = place == 0 && reserved != nullptr && entry.not_before <= now;
    // What is used up is noticed a moment later.
    const bool quotas = HasQuotas(world, *reactor.state().FindJob(entry.id));
    if (first && AllNodesAreThere(world) && !quotas && reserved->from && cluster.retrying.empty() && !start &&
        !reserved->estimate)
      world.Break(name, fmt::format("job {} has devices reserved and no forecast", entry.id));
    if (place > 0) {
      const QueuedJob& ahead = queue[place - 1];
      const bool quota = entry.code == ReasonCode::kQuota || ahead.code == ReasonCode::kQuota ||
                         entry.code == ReasonCode::kNeverFits || ahead.code == ReasonCode::kNeverFits;
      const bool apart =
          ExcludeEachOther(world, *reactor.state().FindJob(ahead.id), *reactor.state().FindJob(entry.id));
      if (!quota && apart && start && before && ahead.most > Duration::zero() &&
          *start < *before + ahead.most)
        world.Break(name, fmt::format("job {} is forecast to start while job {} has its devices", entry.id,
                                      ahead.id));
      if (!quota && apart && start && before && ahead.most == Duration::zero())
        world.Break(
            name, fmt::format("job {} is forecast to start after job {}, of which nobody knows when it ends",
                              entry.id, ahead.id));
    }
    before = start;
  }
}

/// Of a job that would come now, of a higher priority than all, and ask for a whole node that jobs hold which
/// may be preempted: it is forecast for when these have ended at the latest. Where all nodes are there, and
/// nobody leaves or is to come back, whom it could wait for instead.
void WhoPreemptsIsForecastSoon(World& world, const Batch&, const char* name) {
  const auto& reactor = world.daemon.reactor();
  if (!world.ledger.Looks(32, 16) || !world.shape.preemption || reactor.WantsToSchedule()) return;
  if (!AllNodesAreThere(world)) return;
  const Snapshot cluster = reactor.MakeSnapshot(world.time.now());
  Duration longest{};
  for (const auto& [job, holder] : cluster.holders) {
    if (holder.Leaves()) return;
    longest = std::max(longest, holder.to_stop);
  }
  const auto makes_room = [&cluster](JobId job) {
    const auto holder = cluster.holders.find(job);
    return job == JobId() || (holder != cluster.holders.end() && holder->second.preemptible);
  };
  if (!cluster.retrying.empty()) return;
  for (const auto& node : cluster.nodes) {
    if (node.devices.empty() || !std::all_of(node.holders.begin(), node.holders.end(), makes_room)) continue;
    const QueuedJob urgent{.priority = 1000, .ranks_per_node = static_cast<uint32_t>(node.devices.size())};
    const auto start = ForecastLater(cluster, reactor.state().queue(), urgent);
    if (!start || *start > cluster.now + longest)
      world.Break(name, fmt::format("a job that could have {} of those who make room is forecast {}", node.id,
                                    start ? "for later" : "for no time"));
    return;
  }
}

/// Who waits for nodes that nobody before it waits for has devices reserved, whoever else waits.
void TheFirstOfItsNodesHasDevicesReserved(World& world, const Batch&, const char* name) {
  const auto& reactor = world.daemon.reactor();
  if (!world.ledger.Looks(8) || reactor.WantsToSchedule()) return;
  const auto& nodes = reactor.state().all_nodes();
  if (!AllNodesAreThere(world)) return;
  std::set<std::pair<const Needs*, uint32_t>> known;  // of those who wait: their nodes are waited for
  std::vector<bool> waited_for(nodes.size());
  size_t others = nodes.size();
  for (const auto& entry : reactor.state().queue()) {
    if (others == 0) return;  // nobody is the first any more
    // One that waits for its retry may have nothing kept for it, and is the first then.
    const bool waits = entry.code == ReasonCode::kWaitsForDevices ||
                       entry.code == ReasonCode::kWaitsBehindJob || entry.code == ReasonCode::kBackoff;
    if (!waits || !known.emplace(entry.needs.place(), entry.ranks_per_node).second) continue;
    bool first = entry.code == ReasonCode::kWaitsForDevices && !entry.IsChoosy();
    const JobRecord& job = *reactor.state().FindJob(entry.id);
    first = first && !(entry.needs->whole_nodes && HasQuotas(world, job));
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i]->devices.size() < entry.ranks_per_node || !NodeDoes(entry.needs, *nodes[i])) continue;
      first = first && !waited_for[i];
      if (!waited_for[i]) --others;
      waited_for[i] = true;
    }
    if (first && ReservationOf(reactor.reserved(), entry.id) == nullptr)
      world.Break(name, fmt::format("job {} is the first to wait for its nodes", entry.id));
  }
}

}  // namespace

const std::vector<Invariant>& PlaceInvariants() {
  static const std::vector<Invariant> rules = {
      {"the older goes first", TheOlderGoesFirst},
      {"the queue is in order", TheQueueIsInOrder},
      {"the first of its nodes has devices reserved", TheFirstOfItsNodesHasDevicesReserved},
      {"gangs are close", GangsAreClose},
      {"forecasts are consistent", ForecastsAreConsistent},
      {"who preempts is forecast soon", WhoPreemptsIsForecastSoon},
  };
  return rules;
}

}  // namespace imgd::sim
