#include "server/core/trial.h"

#include <algorithm>
#include <set>

namespace imgd {
namespace {

/// Which parts blame which other ones.
using Accusers = std::vector<std::set<size_t>>;

void AddUnanswered(const Run& run, const std::vector<PartNode>& nodes, const GangPulses& pulses,
                   Accusers& accusers) {
  for (const auto& [rank, heard] : pulses) {
    const Part* part = PartOfRank(run, rank);
    if (part == nullptr || heard.pulse.unanswered.empty()) continue;
    const auto from = static_cast<size_t>(part - run.parts.data());
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i != from && nodes[i].address == heard.pulse.unanswered) accusers[i].insert(from);
    }
  }
}

/// Parts of which some rank had not begun what the ranks of others had.
void AddLate(const Run& run, const GangPulses& pulses, Accusers& accusers) {
  uint64_t most = 0;
  for (const auto& [rank, heard] : pulses) most = std::max(most, heard.pulse.collectives);
  std::set<size_t> late;
  for (size_t i = 0; i < run.parts.size(); ++i) {
    const Part& part = run.parts[i];
    for (uint32_t rank = part.first_rank; part.Has(rank); ++rank) {
      const auto heard = pulses.find(rank);
      if (heard == pulses.end() || heard->second.pulse.collectives < most) late.insert(i);
    }
  }
  for (size_t from = 0; from < run.parts.size(); ++from) {
    if (late.contains(from)) continue;
    for (const size_t i : late) accusers[i].insert(from);
  }
}

}  // namespace

bool BrokeBeforeTraining(const JobRecord& job, const Verdict& verdict) {
  if (!job.Trains() || job.state != JobState::kStarting || job.run.parts.size() < 2) return false;
  const ReasonCode cause = verdict.reason.code;
  return verdict.to == JobState::kQueued &&
         (cause == ReasonCode::kCollectiveBroken || cause == ReasonCode::kRankStuck);
}

std::vector<NodeId> BlamedNodes(const Run& run, const std::vector<PartNode>& nodes,
                                const GangPulses& pulses) {
  if (pulses.empty()) return {};
  Accusers accusers(run.parts.size());
  AddUnanswered(run, nodes, pulses, accusers);
  AddLate(run, pulses, accusers);
  size_t most = 1;
  for (const auto& of : accusers) most = std::max(most, of.size());
  std::vector<NodeId> blamed;
  for (size_t i = 0; i < accusers.size(); ++i) {
    if (accusers[i].size() == most) blamed.push_back(run.parts[i].node);
  }
  if (run.parts.size() > 2 && 2 * blamed.size() > run.parts.size()) blamed.clear();
  return blamed;
}

}  // namespace imgd
