#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/growth.h"
#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's part in jobs that may have more nodes than they need: they are asked back through a
/// checkpoint when nobody else could use what is free, and go on at once on that and what they had.
namespace imgd {
namespace {

/// Nodes have to be free for so long: of those that come one after the other all are taken, and whoever ends
/// only to start again is not robbed.
constexpr Duration kSettled = std::chrono::seconds(30);

Duration IntervalOf(const JobRecord& job) { return std::chrono::milliseconds(job.resize_interval_ms); }

/// It will be in the queue once its ranks have ended.
bool ComesToQueue(StopFor stop) {
  return stop == StopFor::kRetry || stop == StopFor::kMove || stop == StopFor::kDrain ||
         stop == StopFor::kPreempt || stop == StopFor::kNotice;
}

}  // namespace

/// Those that ended to go on with more nodes do so before anybody else starts: neither what they had nor what
/// is kept for them is lost to others. Where some of it can't be used any more they go on with the rest.
void Reactor::Regroup(Now now, Actions& out) {
  std::vector<JobId> ended;
  for (const auto& job : state_.queue()) {
    if (job.regroups) ended.push_back(job.id);
  }
  for (const JobId id : ended) {
    JobRecord& job = state_.EditJob(id);
    Placement placement{.job = id, .parts = std::exchange(job.run.grows_to, {})};
    std::erase_if(placement.parts, [&](const Part& part) {
      return !CanTake(part, PartOnNode(job.run, part.node) != nullptr);
    });
    state_.Changed(id);
    if (placement.parts.size() < job.nodes) continue;
    uint32_t rank = 0;
    for (auto& part : placement.parts) part.first_rank = std::exchange(rank, rank + job.ranks_per_node);
    job.avoid = job.run.avoided;
    StartJob(placement, now, out);
  }
}

/// What it was to have besides its own is free.
void Reactor::GiveUpGrowth(JobId id, Now now) {
  if (state_.FindJob(id)->run.grows_to.empty()) return;
  Charge(id, now);
  state_.SetGrowth(id, {});
  dirty_ = true;
}

/// Of its own nodes those do too whose agent is not back yet, as after a restart: it is told once it is.
bool Reactor::CanTake(const Part& part, bool own) const {
  const NodeRecord* node = state_.FindNode(part.node);
  if (node == nullptr || !node->Fit() || !(own || node->Connected())) return false;
  size_t found = 0;
  for (size_t i = 0; i < node->devices.size(); ++i) {
    const uint32_t index = node->devices[i].index;
    const bool wanted = std::find(part.devices.begin(), part.devices.end(), index) != part.devices.end();
    if (!wanted && !part.whole) continue;
    if (node->holders[i] != JobId() || node->ForeignHolder(index)) return false;
    found += wanted ? 1 : 0;
  }
  return found == part.devices.size();
}

/// Jobs that train with fewer nodes than they could have, and have for long enough, in the order of the
/// queue.
std::vector<JobId> Reactor::MayGrow(Now now) {
  next_growth_ = Instant::max();
  std::vector<QueuedJob> may;
  for (const auto& [id, holding] : state_.holdings()) {
    const JobRecord& job = *holding.job;
    const Run& run = job.run;
    // Nobody knows whether a program saves what it did: it is not ended for more nodes.
    if (!job.Trains() || !job.IsElastic() || job.NodesNow() >= job.max_nodes ||
        job.state != JobState::kRunning || run.stop != StopFor::kNothing || run.finished ||
        run.gone_since != Instant{})
      continue;
    // What ends soon would gain nothing.
    const auto left = TimeLeft(job, now.steady);
    if (left && *left < IntervalOf(job)) continue;
    const Instant due = run.held_since + IntervalOf(job);
    if (due > now.steady) {
      next_growth_ = std::min(next_growth_, due);
    } else {
      may.push_back(state_.KeyOf(job));
    }
  }
  std::sort(may.begin(), may.end(), [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  std::vector<JobId> out;
  for (const auto& job : may) out.push_back(job.id);
  return out;
}

/// `cluster`: MakeSnapshot() of this moment; what jobs grow onto is taken from it.
void Reactor::Grow(Snapshot& cluster, Now now, Actions& out) {
  const auto before = std::exchange(could_grow_since_, {});
  const auto may = MayGrow(now);
  if (may.empty()) return;
  std::vector<QueuedJob> coming;
  for (const auto& [id, holding] : state_.holdings()) {
    if (ComesToQueue(holding.job->run.stop)) coming.push_back(EntryOf(*holding.job));
  }
  Growth growth(cluster, layout_, state_.queue(), coming);
  for (const JobId id : may) {
    if (!growth.HasOpenNodes()) return;
    const JobRecord& job = *state_.FindJob(id);
    QueuedJob entry = EntryOf(job);
    entry.avoid = job.run.avoided;
    auto gang = growth.Find(entry, job.run.parts);
    if (!gang) continue;
    growth.Take(entry, job.run.parts, *gang);
    const auto known = before.find(id);
    const Instant since = known == before.end() ? now.steady : known->second;
    const Instant settled = since + std::min(kSettled, IntervalOf(job));
    if (now.steady < settled) {
      could_grow_since_[id] = since;
      next_growth_ = std::min(next_growth_, settled);
      continue;
    }
    AskBack(state_.EditJob(id), StopFor::kGrow, "",
            fmt::format("is to go on with {}", ExplainGrowth(job.run.parts, *gang)), now, out);
    Charge(id, now);
    state_.SetGrowth(id, std::move(*gang));
  }
}

}  // namespace imgd
