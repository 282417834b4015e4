// What must always hold for jobs that crash and for nodes that are held to blame.
#include <algorithm>

#include "server/core/job.h"
#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

constexpr uint32_t kRunning = 3;  ///< crashes in one place, and jobs on one node

/// Ends by itself that are no consequence of another's; `exit.by_us` is the core's word, and checked
/// elsewhere.
struct IsOwn {
  const JobRecord& job;
  bool operator()(const RankExit& exit) const {
    const bool broken = exit.exit_code == 10 && job.Trains();
    const bool bad_input = exit.exit_code == 2 && job.kind != imgd::JobKind::kCommand;
    return !exit.by_us && !broken && !bad_input && (exit.exit_code != 0 || exit.signal != 0);
  }
};

/// A program ran for so long that its start counts as progress. Nothing where it is not sure, since the
/// daemon restarted meanwhile, or it was close.
std::optional<bool> RanForLong(const World& world, const JobRecord& job, const Ledger::Job& known) {
  if (job.Trains()) return false;
  const Duration ran = world.time.now().steady - known.held_since;
  if (ran < kRanForLong - std::chrono::seconds(30)) return false;
  if (ran > kRanForLong + std::chrono::seconds(30)) return true;
  return std::nullopt;
}

bool IsAsideByImgd(const NodeRecord& node) { return node.set_aside && node.set_aside->by != AsideBy::kUser; }

/// Jobs of one sweep count as one: they are of one file.
JobId FileOf(const JobRecord& job) { return job.sweep == JobId() ? job.id : job.sweep; }

/// The end of a job's run in this commit, which is the last one in it.
template <typename Rule>
void ForEnds(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->from == event->to || !HoldsDevices(event->from)) continue;
    if (HoldsDevices(event->to)) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    // One that has started again in this commit has another run now.
    if (job == nullptr || job->by_hand) continue;
    if (job->generation != event->generation || job->HoldsDevices()) {
      world.ledger.blamed.clear();  // where it was, and how it ended, is not known any more
      continue;
    }
    rule(*event, *job, world.ledger.jobs[event->job]);
  }
}

/// Notes crashes and blame, of which the rules below are. First in the table.
void NoteBlame(World& world, const Batch& batch, const char*) {
  ForEnds(world, batch, [&](const AppendEvent& event, const JobRecord& job, Ledger::Job& known) {
    // Also in a start between, which ended and began again in one commit.
    const auto ran_for_long = RanForLong(world, job, known);
    if (!ran_for_long) world.ledger.blamed.clear();
    const bool progressed = known.newest_accepted > known.noted || ran_for_long.value_or(true);
    known.noted = event.generation;
    if (progressed) {
      known.crashed_on.clear();
      known.crashes_there = 0;
      known.doubtful = false;
    }
    for (const auto& other : batch.actions) {
      const auto* saved = std::get_if<SaveCheckpoint>(&other);
      if (saved != nullptr && saved->job == job.id) known.doubtful = true;  // before the end, or after it?
    }
    // Then its ranks may blame any of its nodes.
    const bool broke = event.from == JobState::kStarting && job.run.parts.size() > 1 && CollectiveBroke(job);
    for (const auto& part : job.run.parts) {
      auto& jobs = world.ledger.failed_on[part.node];
      const bool good = event.to == JobState::kCompleted || progressed;
      if (good) world.ledger.blamed[part.node].clear();
      const bool failed_here = std::any_of(
          job.run.exits.begin(), job.run.exits.end(),
          [&](const RankExit& exit) { return IsOwn{job}(exit) && PartOfRank(job.run, exit.rank) == &part; });
      // What a node is set aside for, in this commit too, is remembered until it is used again. Of
      // checkpoints nobody knows here whether they were told before the end.
      const NodeRecord* const node = world.daemon.reactor().state().FindNode(part.node);
      const bool aside = world.ledger.aside.contains(part.node) || (node != nullptr && IsAsideByImgd(*node));
      if (event.to == JobState::kCompleted && !aside) jobs.clear();
      if (failed_here || broke || !job.run.troubles.empty()) jobs.insert(FileOf(job));
    }
    const auto own = std::count_if(job.run.exits.begin(), job.run.exits.end(), IsOwn{job});
    const auto exit = std::find_if(job.run.exits.begin(), job.run.exits.end(), IsOwn{job});
    // Only where there is no doubt which rank it was.
    const bool sure = own == 1 && job.run.troubles.empty() && !IsGivenBack(event.reason.code) &&
                      event.to != JobState::kCancelled && event.to != JobState::kCompleted;
    if (own == 0) {
      // Ranks that ended too early, with exit code 0, crashed too, and elsewhere.
      const bool early = std::any_of(job.run.exits.begin(), job.run.exits.end(), [](const RankExit& end) {
        return !end.by_us && end.exit_code == 0 && end.signal == 0;
      });
      if (early && event.reason.code == ReasonCode::kRankFailed) known.crashes_there = 0;
      return;
    }
    const bool told = std::any_of(job.run.failures.begin(), job.run.failures.end(),
                                  [&](const RankFailure& failure) { return failure.rank == exit->rank; });
    if (!sure || exit->signal != 0 || exit->exit_code != 1 || exit->where.empty() || !told) {
      known.doubtful = true;
      return;
    }
    known.crashes_there = exit->where == known.crashed_at ? known.crashes_there + 1 : 1;
    known.crashed_at = exit->where;
  });
}

/// A job that crashes in the same place each time ends after three starts, and is told why.
void SamePlaceEndsTheJob(World& world, const Batch& batch, const char* name) {
  ForEnds(world, batch, [&](const AppendEvent& event, const JobRecord& job, Ledger::Job& known) {
    if (known.doubtful) return;
    if (event.to == JobState::kQueued && known.crashes_there >= kRunning) {
      world.Break(name, fmt::format("job {} crashed {} times running at {} and is tried again", job.id,
                                    known.crashes_there, known.crashed_at));
    }
    if (event.reason.code == ReasonCode::kSamePlace && known.crashes_there != kRunning) {
      world.Break(name, fmt::format("job {} was given up for crashing in one place, after {} times at {}",
                                    job.id, known.crashes_there, known.crashed_at));
    }
  });
}

/// A node is set aside by imgd only where ranks of three different jobs failed there since it was last good,
/// of one sweep only one.
void AHealthyNodeIsNotSetAside(World& world, const Batch& batch, const char* name) {
  if (!batch.nodes_touched) return;
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    if (!IsAsideByImgd(node) || world.ledger.aside.contains(id)) continue;
    const size_t jobs = world.ledger.failed_on[id].size();
    if (jobs < kRunning)
      world.Break(name, fmt::format("node {} is set aside where {} jobs failed", id, jobs));
  }
}

/// Never more than half of the nodes that are not lost are set aside by imgd.
void HalfOfTheNodesStay(World& world, const Batch& batch, const char* name) {
  if (!batch.nodes_touched) return;
  size_t known = 0;
  size_t aside = 0;
  bool more = false;
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    if (node.state == NodeState::kLost) continue;
    ++known;
    aside += IsAsideByImgd(node) ? 1 : 0;
    more = more || (IsAsideByImgd(node) && !world.ledger.aside.contains(id));
  }
  if (more && 2 * aside > known) world.Break(name, fmt::format("{} of {} nodes are set aside", aside, known));
}

/// A node that failed three different jobs in a row, which failed nowhere else, is set aside; unless that
/// would be too many, or others are no better.
void ASickNodeIsSetAside(World& world, const Batch& batch, const char* name) {
  const auto& nodes = world.daemon.reactor().state().nodes();
  ForEnds(world, batch, [&](const AppendEvent& event, const JobRecord& job, Ledger::Job& known) {
    const auto exit = std::find_if(job.run.exits.begin(), job.run.exits.end(), IsOwn{job});
    const bool crashed = event.to == JobState::kQueued || event.to == JobState::kFailed;
    const bool sure = crashed && event.reason.code != ReasonCode::kTimeLimit &&
                      !IsGivenBack(event.reason.code) && job.run.troubles.empty() &&
                      std::count_if(job.run.exits.begin(), job.run.exits.end(), IsOwn{job}) == 1 &&
                      exit->exit_code == 1 && exit->signal == 0;
    const Part* part = exit == job.run.exits.end() ? nullptr : PartOfRank(job.run, exit->rank);
    // Whatever it may be blamed for.
    for (const auto& other : job.run.parts) {
      const bool own = std::any_of(job.run.exits.begin(), job.run.exits.end(), [&](const RankExit& end) {
        return IsOwn{job}(end) && PartOfRank(job.run, end.rank) == &other;
      });
      // Without a port for the rendezvous nothing of it ran there.
      const bool ran = job.run.master_port != 0;
      if (own || (ran && !job.run.troubles.empty())) known.crashed_on.insert(other.node);
    }
    if (known.crashed_on.size() > 1) {
      for (auto& [node, jobs] : world.ledger.blamed) jobs.erase(FileOf(job));
      return;
    }
    if (part == nullptr) return;
    auto& blamed = world.ledger.blamed[part->node];
    if (!sure) {
      blamed.clear();
      return;
    }
    blamed.insert(FileOf(job));
    const auto node = nodes.find(part->node);
    if (node == nodes.end() || node->second.set_aside || blamed.size() < kRunning) return;
    size_t known_nodes = 0;
    size_t aside = 0;
    size_t others_struck = 0;
    size_t others = 0;
    for (const auto& [id, other] : nodes) {
      // Those that came in this commit may have come after the judgement.
      const auto before = world.ledger.nodes.find(id);
      if (before == world.ledger.nodes.end() || before->second == NodeState::kLost) continue;
      if (other.state == NodeState::kLost) continue;
      ++known_nodes;
      aside += IsAsideByImgd(other) ? 1 : 0;
      if (id == part->node || other.set_aside) continue;
      ++others;
      others_struck += world.ledger.failed_on[id].size() + 1 >= kRunning ? 1 : 0;
    }
    if (2 * (aside + 1) > known_nodes || 2 * others_struck >= others) return;
    // After a sleep one commit has much: others may have come back after this.
    if (batch.nodes_touched && world.daemon.disturbed() + std::chrono::seconds(3) > world.time.now().steady)
      return;
    world.Break(name, fmt::format("node {} failed {} jobs in a row and is used", part->node, blamed.size()));
  });
}

/// Nothing is placed on a node whose health checks failed, as far as the daemon was told.
void NoGangOnASickNode(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->to != JobState::kStarting || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job == nullptr || job->generation != event->generation) continue;
    for (const auto& part : job->run.parts) {
      const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
      if (world.ledger.ill[part.node])
        world.Break(name, fmt::format("job {} is placed on {}, whose disk is full", job->id, part.node));
      if (node != nullptr && node->set_aside && world.ledger.aside.contains(part.node))
        world.Break(name, fmt::format("job {} is placed on {}, which is set aside", job->id, part.node));
    }
  }
}

/// Last in the table.
void NoteAside(World& world, const Batch& batch, const char*) {
  if (!batch.nodes_touched) return;
  world.ledger.aside.clear();
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    if (node.set_aside) world.ledger.aside.insert(id);
  }
}

}  // namespace

const std::vector<Invariant>& RetryInvariants() {
  static const std::vector<Invariant> rules = {
      {"(blame is noted)", NoteBlame},
      {"the same place ends the job", SamePlaceEndsTheJob},
      {"a healthy node is not set aside", AHealthyNodeIsNotSetAside},
      {"half of the nodes stay", HalfOfTheNodesStay},
      {"a sick node is set aside", ASickNodeIsSetAside},
      {"no gang on a sick node", NoGangOnASickNode},
      {"(nodes set aside are noted)", NoteAside},
  };
  return rules;
}

}  // namespace imgd::sim
