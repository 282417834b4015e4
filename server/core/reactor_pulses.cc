#include <utility>

#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's part in finding gangs that can't go on.
namespace imgd {

void Reactor::OnRunPulse(const NodeId& node, RunKey run, std::vector<RankPulse> ranks, Now now) {
  const JobRecord* job = ActiveRun(run);
  const Part* part = job == nullptr ? nullptr : PartOnNode(job->run, node);
  // What a command runs may well give signs of life; nobody knows what it means by them.
  if (part == nullptr || part->lost || !job->Trains()) return;
  Watched& watched = watched_[run.job];
  if (watched.generation != run.generation) watched = {.generation = run.generation};
  for (auto& pulse : ranks) {
    const uint32_t rank = pulse.rank;
    if (part->Has(rank)) watched.ranks[rank] = {.pulse = std::move(pulse), .at = now.steady};
  }
  watched.unjudged = true;
}

/// A look at a gang is one at all its ranks: once for the pulses of all its nodes.
void Reactor::JudgePulses(Now now, Actions& out) {
  for (auto& [id, watched] : watched_) {
    if (!std::exchange(watched.unjudged, false)) continue;
    const JobRecord* job = ActiveRun({id, watched.generation});
    if (job == nullptr || job->run.stop != StopFor::kNothing || MustStop(job->run)) continue;
    auto stall = FindStall(job->run, NodesOf(*job), watched.ranks, now.steady);
    if (!stall) continue;
    AddTrouble(id, stall->trouble.code, std::move(stall->trouble.text));
    // It is not just hard to reach; the gang can start elsewhere.
    if (stall->lost) LoseNode(*stall->lost, "", now, out);
  }
}

std::vector<PartNode> Reactor::NodesOf(const JobRecord& job) const {
  std::vector<PartNode> nodes;
  for (const auto& part : job.run.parts) {
    const NodeRecord* node = state_.FindNode(part.node);
    nodes.push_back({.out_of_reach = node == nullptr || node->state != NodeState::kReady,
                     .address = node == nullptr ? "" : node->address});
  }
  return nodes;
}

void Reactor::NoteWhere(RunKey run, RankExit& exit) const {
  const auto watched = watched_.find(run.job);
  if (watched == watched_.end() || watched->second.generation != run.generation) return;
  const auto rank = watched->second.ranks.find(exit.rank);
  if (rank == watched->second.ranks.end()) return;
  exit.where = WhereOf(rank->second.pulse);
  exit.last_line = rank->second.pulse.last_line;
}

}  // namespace imgd
