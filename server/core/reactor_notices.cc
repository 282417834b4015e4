#include <fmt/format.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's part in machines that their owner takes back: spot instances, mostly. What runs there goes
/// elsewhere while there is time for a checkpoint.
namespace imgd {

void Reactor::NoteNotice(const NodeId& id, const std::optional<Notice>& notice, Now now, Actions& out) {
  if (state_.FindNode(id)->notice == notice) return;
  NodeRecord& node = state_.EditUnstored(id);
  node.notice = notice;
  dirty_ = true;
  const std::string actor = fmt::format("agent:{}", id);
  if (!notice) {
    NoteNode(id, ReasonCode::kNodeWell, fmt::format("node {} is not being taken back any more", id), actor,
             now, out);
    return;
  }
  const std::string text = fmt::format("node {} {}", id, ExplainNotice(node));
  NoteNode(id, ReasonCode::kSpotNotice,
           fmt::format("{}; nothing new is placed there, and what runs there goes elsewhere", text), actor,
           now, out);
  AskBackAllOn(id, StopFor::kNotice, "", text, now, out);
}

/// What the ranks have to end, or for their checkpoint: no longer than the first of their nodes stays.
std::chrono::milliseconds Reactor::GraceFor(const JobRecord& job, Now now) const {
  // A program saves what it has when it is told to end.
  const bool saves = job.run.checkpoint_first || !job.Trains();
  int64_t grace_ms = saves ? GraceForCheckpoint(job) : job.grace_ms;
  if (job.run.stop != StopFor::kNotice) return std::chrono::milliseconds(grace_ms);
  for (const auto& part : job.run.parts) {
    const NodeRecord* node = state_.FindNode(part.node);
    if (part.Over() || node == nullptr || !node->notice) continue;
    const auto left = std::chrono::microseconds(node->notice->at.micros - now.wall.micros);
    // Of one that is there after its time nobody knows how long it stays; the usual grace is as good as any.
    grace_ms = std::min(grace_ms, left > Duration::zero() ? GraceWithin(grace_ms, left) : job.grace_ms);
  }
  return std::chrono::milliseconds(grace_ms);
}

}  // namespace imgd
