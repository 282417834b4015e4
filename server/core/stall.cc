#include "server/core/stall.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/job.h"

namespace imgd {
namespace {

/// Pulses come each second; one that is older says nothing of now.
constexpr auto kFresh = std::chrono::seconds(5);

/// A process that runs gives a sign of life twice a second.
constexpr auto kSilent = std::chrono::seconds(4);

/// A core dump of a large process takes long, and is of no use if it is cut.
constexpr auto kCoreDump = std::chrono::minutes(10);

/// A rank that has not ended.
struct Member {
  const Part* part = nullptr;
  const PartNode* node = nullptr;
  uint32_t rank = 0;
  const RankPulse* pulse = nullptr;  ///< the last one; null where it never came
  bool fresh = false;

  uint64_t collectives() const { return pulse == nullptr ? 0 : pulse->collectives; }
  bool dumps_core() const { return fresh && pulse->dumping_core; }
};

std::vector<Member> MembersOf(const Run& run, const std::vector<PartNode>& nodes, const GangPulses& pulses,
                              Instant now) {
  std::vector<Member> members;
  for (size_t i = 0; i < run.parts.size(); ++i) {
    const Part& part = run.parts[i];
    if (part.Over()) continue;
    for (uint32_t rank = part.first_rank; part.Has(rank); ++rank) {
      if (std::any_of(run.exits.begin(), run.exits.end(),
                      [rank](const RankExit& exit) { return exit.rank == rank; })) {
        continue;
      }
      const auto heard = pulses.find(rank);
      const bool known = heard != pulses.end();
      members.push_back({.part = &part,
                         .node = &nodes[i],
                         .rank = rank,
                         .pulse = known ? &heard->second.pulse : nullptr,
                         .fresh = known && !nodes[i].out_of_reach && now - heard->second.at <= kFresh});
    }
  }
  return members;
}

std::string Named(const Member& member) {
  return fmt::format("rank {} on node {}", member.rank, member.part->node);
}

std::string LastLineOf(const Member& member) {
  if (member.pulse == nullptr || member.pulse->last_line.empty()) return "";
  return fmt::format("; its last log line: {}", member.pulse->last_line);
}

int64_t SecondsOf(Duration time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

Stall Stopped(const Member& member) {
  if (member.dumps_core()) {
    return {{ReasonCode::kRankStuck,
             fmt::format("{} has been dumping core for {} s, which is too long, since {}{}", Named(member),
                         SecondsOf(member.pulse->silent), WhereOf(*member.pulse), LastLineOf(member))},
            {}};
  }
  return {
      {ReasonCode::kRankStuck,
       fmt::format("{} is stopped: its process has given no sign of life for {} s, at {}{}", Named(member),
                   SecondsOf(member.pulse->silent), WhereOf(*member.pulse), LastLineOf(member))},
      {}};
}

std::optional<Stall> FindSilent(const std::vector<Member>& members) {
  const Member* stopped = nullptr;
  for (const auto& member : members) {
    if (!member.fresh || member.pulse->silence_limit == Duration::zero()) continue;
    const Duration limit = member.dumps_core() ? std::max<Duration>(member.pulse->silence_limit, kCoreDump)
                                               : member.pulse->silence_limit;
    if (member.pulse->silent < limit) continue;
    if (stopped == nullptr || member.collectives() < stopped->collectives()) stopped = &member;
  }
  if (stopped == nullptr) return std::nullopt;
  return Stopped(*stopped);
}

/// Those that the others wait for.
std::vector<const Member*> Last(const std::vector<Member>& members) {
  std::vector<const Member*> last;
  for (const auto& member : members) {
    if (!last.empty() && member.collectives() > last.front()->collectives()) continue;
    if (!last.empty() && member.collectives() < last.front()->collectives()) last.clear();
    last.push_back(&member);
  }
  return last;
}

/// The longest that one of them may be at what it does; nothing for ever.
template <class Counts>
std::optional<Duration> LongestLimit(const std::vector<Member>& members, Counts counts) {
  Duration limit{};
  for (const auto& member : members) {
    if (member.pulse == nullptr || !counts(member)) continue;
    if (member.pulse->limit == Duration::zero()) return std::nullopt;
    limit = std::max(limit, member.pulse->limit);
  }
  return limit;
}

std::optional<Duration> LimitOfHeard(const std::vector<Member>& members) {
  return LongestLimit(members, [](const Member& member) { return member.fresh; });
}

/// How long the others may wait for the `last`. Of a rank that was never heard nothing is known but that the
/// others wait for it, within their own limits.
std::optional<Duration> LimitOf(const std::vector<const Member*>& last, const std::vector<Member>& members) {
  const auto limit = LongestLimit(members, [&](const Member& member) {
    return std::find(last.begin(), last.end(), &member) != last.end();
  });
  return limit && *limit == Duration::zero() ? LimitOfHeard(members) : limit;
}

std::string RanksOf(const Part& part) {
  const auto last = part.first_rank + part.Ranks() - 1;
  return last == part.first_rank ? fmt::format("rank {}", last)
                                 : fmt::format("ranks {} to {}", part.first_rank, last);
}

/// The link that one of the ranks finds dead; empty where all peers answer.
std::string LostLink(const std::vector<Member>& members) {
  for (const auto& member : members) {
    if (!member.fresh || member.pulse->unanswered.empty()) continue;
    const auto& address = member.pulse->unanswered;
    const auto peer = std::find_if(members.begin(), members.end(), [&](const Member& other) {
      return other.node->address == address && other.part != member.part;
    });
    if (peer == members.end()) return fmt::format("{} gets no answer from {}", Named(member), address);
    return fmt::format("the link between {} and node {} ({}) is lost: the former gets no answer from {}",
                       Named(member), peer->part->node, RanksOf(*peer->part), address);
  }
  return "";
}

/// One whose node is out of reach, and whose kernel answers a rank of another node no more; else null.
const Member* FindCutOff(const std::vector<Member>& members) {
  for (const auto& from : members) {
    if (!from.node->out_of_reach) continue;
    const bool unanswered = std::any_of(members.begin(), members.end(), [&](const Member& member) {
      return member.fresh && !member.pulse->unanswered.empty() &&
             member.pulse->unanswered == from.node->address;
    });
    if (unanswered) return &from;
  }
  return nullptr;
}

Stall Lost(const Member& member, const std::vector<Member>& members, Duration still) {
  return {{ReasonCode::kNodeLost,
           fmt::format("node {} is out of reach, and the gang has stood still for {} s: rank {} there was "
                       "last seen at {}; {}{}",
                       member.part->node, SecondsOf(still), member.rank,
                       member.pulse == nullptr ? "its start" : WhereOf(*member.pulse), LostLink(members),
                       LastLineOf(member))},
          member.part->node};
}

std::optional<Stall> Blame(const std::vector<const Member*>& last, const std::vector<Member>& members) {
  // Its agent alone may be away, while the rank does what takes longer than the others know of.
  if (std::any_of(last.begin(), last.end(), [](const Member* member) { return member->node->out_of_reach; }))
    return std::nullopt;
  const Member& member = **std::max_element(last.begin(), last.end(), [](const Member* a, const Member* b) {
    return a->pulse->still < b->pulse->still;
  });
  // The limits of silence and of standing still may end in either order.
  if (member.pulse->silent >= kSilent) return Stopped(member);
  const std::string where = fmt::format("{} has been at {} for {} s", Named(member), WhereOf(*member.pulse),
                                        SecondsOf(member.pulse->still));
  const std::string link = LostLink(members);
  std::string text;
  if (!link.empty()) {
    text = fmt::format("{}; {}", link, where);
  } else if (members.size() == 1) {
    text = fmt::format("no progress: {}", where);
  } else if (last.size() == members.size()) {
    text = fmt::format("no rank makes progress: {}, the longest of all {}", where, members.size());
  } else {
    text = fmt::format("no progress: {}, and {} wait{} for it", where, members.size() - last.size(),
                       members.size() - last.size() == 1 ? "s" : "");
  }
  return Stall{{ReasonCode::kRankStuck, text + LastLineOf(member)}, {}};
}

std::optional<Stall> FindStandstill(const std::vector<Member>& members) {
  std::optional<Duration> still;
  for (const auto& member : members) {
    if (member.fresh) still = still ? std::min(*still, member.pulse->still) : member.pulse->still;
    if (!member.fresh && !member.node->out_of_reach) return std::nullopt;
  }
  if (!still) return std::nullopt;
  // What it was at when it was last heard, and which collective was its last, says nothing of now: it may
  // have been ahead, or writing a checkpoint. The others have waited as long as what they do may take.
  if (const Member* cut_off = FindCutOff(members)) {
    const auto limit = LimitOfHeard(members);
    return limit && *still >= *limit ? std::optional(Lost(*cut_off, members, *still)) : std::nullopt;
  }
  const auto last = Last(members);
  const auto limit = LimitOf(last, members);
  if (!limit || *still < *limit) return std::nullopt;
  // The others wait for it, and hear of its end once its core is written; its own limit is FindSilent()'s.
  if (std::any_of(members.begin(), members.end(), [](const Member& member) { return member.dumps_core(); }))
    return std::nullopt;
  return Blame(last, members);
}

}  // namespace

std::string WhereOf(const RankPulse& pulse) {
  return fmt::format("step {}, {} (collective {})", pulse.step, pulse.what, pulse.collectives);
}

std::optional<Stall> FindStall(const Run& run, const std::vector<PartNode>& nodes, const GangPulses& pulses,
                               Instant now) {
  const auto members = MembersOf(run, nodes, pulses, now);
  if (auto silent = FindSilent(members)) return silent;
  return FindStandstill(members);
}

}  // namespace imgd
