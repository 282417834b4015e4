#include "server/core/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "server/core/needs.h"

namespace imgd {
namespace {

/// "2 nodes", "2 to 8 nodes".
std::string GangText(uint32_t nodes, uint32_t max_nodes) {
  return max_nodes > nodes ? fmt::format("{} to {} nodes", nodes, max_nodes) : CountText(nodes, "node");
}

/// "needs 2 nodes with 1 free device each"; `adjective` is "free " or nothing. Where some nodes do not count
/// because of their folders, it says so. `fit`: that of the job.
std::string NeedsOf(Room& room, const QueuedJob& job, std::string_view adjective, const Fit& fit) {
  std::string text =
      fmt::format("needs {} with {} {}{} each{}{}", GangText(job.nodes, job.max_nodes), job.ranks_per_node,
                  adjective, NounFor(job.needs, job.ranks_per_node != 1),
                  job.needs->whole_nodes ? " and nothing else on them" : "", LabelsFor(job.needs));
  if (job.most_devices != QueuedJob::kAnySize)
    text += fmt::format(", of at most {} by what is left of a quota", CountText(job.most_devices, "device"));
  if (job.folder.empty()) return text;
  QueuedJob anywhere = job;
  anywhere.folder.clear();
  if (fit.with_lost < room.FitOf(anywhere).with_lost) {
    text += fmt::format(" that share {}", job.folder);
    if (job.resumes_with != NodeId()) text += fmt::format(" with {}", job.resumes_with);
  }
  return text;
}

std::string_view VerbFor(const Snapshot& cluster, JobId id) {
  if (cluster.retrying.contains(id)) return "starts again soon and comes first on";
  const auto holder = cluster.holders.find(id);
  return holder != cluster.holders.end() && holder->second.Leaves() ? "gives back" : "holds";
}

/// As InText(), of a time that has not come yet.
std::string TimeUntil(const Snapshot& cluster, Instant when, bool estimate) {
  return when <= cluster.now ? "any moment now" : InText(when - cluster.now, estimate);
}

/// So many of each sort are named.
constexpr size_t kMostInTheWay = 3;

/// Where a job is in the way: the first nodes, and how many there are.
struct InTheWay {
  std::vector<std::string> names;
  size_t nodes = 0;
  const NodeSlots* last = nullptr;
};

/// Who holds what the job could have of these nodes, by their numbers.
std::map<uint64_t, InTheWay> AllInTheWay(const std::vector<const NodeSlots*>& nodes, const QueuedJob& job) {
  std::map<uint64_t, InTheWay> all;
  NodesCheck check(job.needs);
  for (const NodeSlots* in_reach : nodes) {
    const NodeSlots& node = *in_reach;
    if (!node.usable || job.IsTooLarge(node)) continue;
    if (check.RoomFor(node) < job.ranks_per_node || check.FreeFor(node) >= job.ranks_per_node) continue;
    JobId before;
    for (size_t i = 0; i < node.holders.size(); ++i) {
      const JobId holder = node.holders[i];
      if (holder == before || holder == JobId() || (!job.needs->whole_nodes && !check.Does(node, i)))
        continue;
      before = holder;
      InTheWay& one = all[holder.value()];
      if (one.last == &node) continue;
      one.last = &node;
      if (++one.nodes <= kMostInTheWay) one.names.push_back(node.id.name());
    }
  }
  return all;
}

/// " and may not be preempted", of a holder that would make room for this job if it could.
std::string WhyNotPreempted(const Snapshot& cluster, const QueuedJob& job, JobId id) {
  const auto holder = cluster.holders.find(id);
  if (holder == cluster.holders.end()) return "";
  const bool would = holder->second.priority < job.priority && !holder->second.Leaves();
  return would && !holder->second.preemptible ? " and may not be preempted" : "";
}

/// "job 3 (rn50-a) holds gpu-1, gpu-2 and ends in about 40 min", for the jobs in the way, by number; at most
/// three of them.
std::vector<std::string> HolderTexts(const Snapshot& cluster, const std::vector<const NodeSlots*>& nodes,
                                     const QueuedJob& job) {
  const auto all = AllInTheWay(nodes, job);
  std::vector<uint64_t> first(std::min(all.size(), kMostInTheWay));
  std::vector<uint64_t> numbers;
  for (const auto& [number, one] : all) numbers.push_back(number);
  std::partial_sort_copy(numbers.begin(), numbers.end(), first.begin(), first.end());
  std::vector<std::string> out;
  for (const uint64_t number : first) {
    const JobId holder(number);
    const InTheWay& one = all.at(number);
    const size_t more = one.nodes - one.names.size();
    out.push_back(fmt::format("{} {} {}{}{}{}", NameOfJob(cluster, holder), VerbFor(cluster, holder),
                              fmt::join(one.names, ", "),
                              more > 0 ? fmt::format(" and {}", CountText(more, "more node")) : "",
                              WhyNotPreempted(cluster, job, holder), ExplainEnd(cluster, holder)));
  }
  if (const size_t more = all.size() - first.size(); more > 0)
    out.push_back(
        fmt::format("{} {} in the way of the rest", CountText(more, "more job"), more == 1 ? "is" : "are"));
  return out;
}

/// " and can start in 40 min at the latest", where that is known.
std::string StartOf(const Snapshot& cluster, const Reservation& reserved, std::string_view before) {
  if (!reserved.from) return "";
  return fmt::format("{} can start {}", before, TimeUntil(cluster, *reserved.from, reserved.estimate));
}

/// "; it can start in about 40 min", where that is known of what is reserved for the job itself.
std::string OwnStart(const Snapshot& cluster, const QueuedJob& job) {
  const Reservation* const own = ReservationOf(*cluster.reserved, job.id);
  return own == nullptr ? "" : StartOf(cluster, *own, "; it");
}

std::string FreeText(const Fit& fit) {
  return fit.free_now == 1 ? "1 is free" : fmt::format("{} are free", fit.free_now);
}

std::string ExplainDevices(const Snapshot& cluster, Layout& layout, Room& room, const QueuedJob& job) {
  const Fit fit = room.FitOf(job);
  const auto nodes = NodesInReach(cluster, layout, job);
  std::vector<std::string> parts = {NeedsOf(room, job, "free ", fit), FreeText(fit)};
  for (auto& text : HolderTexts(cluster, nodes, job)) parts.push_back(std::move(text));
  for (auto& text : ExplainUnusable(nodes, job)) parts.push_back(std::move(text));
  if (!job.avoid.empty()) {
    std::vector<std::string> names;
    for (const auto& node : job.avoid) names.push_back(node.name());
    parts.push_back(fmt::format("it is not to start on {} again", fmt::join(names, ", ")));
  }
  return fmt::format("{}{}", fmt::join(parts, "; "), OwnStart(cluster, job));
}

/// What there is: "3 nodes with 8 NVIDIA H100 80GB HBM3, 1 node with 4 cpu"; at most three kinds.
std::string WhatThereIs(const Snapshot& cluster) {
  std::map<std::pair<std::string, size_t>, uint32_t> nodes;
  for (const auto& node : cluster.nodes) {
    std::set<std::string> models;
    if (node.kind) {
      for (const auto& device : *node.kind->devices) models.insert(device.model);
    }
    ++nodes[{fmt::format("{}", fmt::join(models, " and ")), node.devices.size()}];
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : nodes) {
    if (kinds.size() == 3) {
      kinds.emplace_back("others");
      break;
    }
    kinds.push_back(fmt::format("{} with {}", CountText(count, "node"),
                                kind.first.empty() ? CountText(kind.second, "device")
                                                   : fmt::format("{} {}", kind.second, kind.first)));
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

/// How many nodes have which of the labels it asks for: "of them 1 labelled zone=a, 2 zone=b"; at most five.
std::string LabelsThereAre(const Snapshot& cluster, const Needs& needs) {
  std::map<std::string, size_t> found;
  for (const auto& node : cluster.nodes) {
    if (!node.kind) continue;
    for (const auto* asked : {&needs.labels, &needs.not_labels}) {
      for (const auto& [name, values] : *asked) {
        const auto label = node.kind->labels.find(name);
        if (label != node.kind->labels.end()) ++found[fmt::format("{}={}", name, label->second)];
      }
    }
  }
  constexpr size_t kMost = 5;
  std::vector<std::string> texts;
  for (const auto& [label, nodes] : found) {
    if (texts.size() == kMost) {
      texts.emplace_back("others");
      break;
    }
    texts.push_back(fmt::format("{} {}{}", nodes, texts.empty() ? "labelled " : "", label));
  }
  return texts.empty() ? "without such labels" : fmt::format("of them {}", fmt::join(texts, ", "));
}

/// Of what it asks for, what is in the way, so that it is known what would help.
std::string ExplainNeverFits(const Snapshot& cluster, Room& room, const QueuedJob& job) {
  const Fit all = room.FitOf(job);
  const uint32_t fit = all.with_lost;
  std::string text = fmt::format("{}, which {} can give; known: {}", NeedsOf(room, job, "", all),
                                 fit == 0 ? "no node" : fmt::format("only {}", CountText(fit, "node")),
                                 WhatThereIs(cluster));
  Needs needs = job.needs;
  needs.labels.clear();
  needs.not_labels.clear();
  QueuedJob anywhere = job;
  anywhere.needs = std::move(needs);
  if (room.FitOf(anywhere).with_lost >= job.nodes) {
    return fmt::format("{}, {}; ask for other labels, or give them to nodes", text,
                       LabelsThereAre(cluster, job.needs));
  }
  return text +
         (fit == 0 ? "; add nodes that can, or ask for less of each node" : "; add nodes, or ask for fewer");
}

/// "user ada has spent 100.20 of 100 EUR this month; it starts again on 2026-12-01".
std::string ExplainUsedUp(const Snapshot& cluster, const std::string& account, const UsedUp& used_up) {
  const Budget& budget = used_up.budget;
  const auto when = [&budget] {
    switch (budget.per) {
      case Period::kDay:
        return "today";
      case Period::kWeek:
        return "this week";
      case Period::kMonth:
        return "this month";
      case Period::kTotal:
        break;
    }
    return "in all";
  }();
  const std::string unit = !used_up.spend             ? " device-hours"
                           : cluster.currency.empty() ? ""
                                                      : " " + cluster.currency;
  const int decimals = budget.most < 1 ? 4 : 2;
  const std::string text =
      fmt::format("{} has {} {:.{}f} of {}{} {}", account, used_up.spend ? "spent" : "used", used_up.used,
                  decimals, budget.most, unit, when);
  if (!used_up.until) return text + ", which does not begin anew; the operator can give it more";
  const std::chrono::year_month_day date{std::chrono::floor<std::chrono::days>(
      std::chrono::sys_time<std::chrono::microseconds>(std::chrono::microseconds(used_up.until->micros)))};
  return fmt::format("{}; it starts again on {:04}-{:02}-{:02} (UTC)", text, static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

/// "user ada may have 16 devices at once and has 14; it needs 4", of each account that is in the way.
std::string ExplainQuota(const Snapshot& cluster, Room& room, const QueuedJob& job) {
  const uint32_t needs = job.nodes * job.ranks_per_node;
  std::vector<std::string> full, parts, kept;
  for (const auto& account : *job.accounts) {
    const auto known = cluster.allowances.find(account);
    if (known == cluster.allowances.end()) continue;
    const Allowance& allowance = known->second;
    if (allowance.used_up) {
      parts.push_back(ExplainUsedUp(cluster, account, *allowance.used_up));
      continue;
    }
    if (allowance.devices == 0) continue;
    const std::string has = fmt::format("{} may have {} at once and has {}", account,
                                        CountText(allowance.devices, "device"), allowance.used);
    kept.push_back(has);
    const uint32_t largest = allowance.devices / job.nodes;
    if (needs > allowance.devices) {
      parts.push_back(
          fmt::format("{}; it needs {}, which is more than the quota, so that it can't start", has, needs));
    } else if (job.needs->whole_nodes && !room.CouldHoldOnSmall(job, largest)) {
      const bool may_return = room.CouldHoldOnSmall(job, largest, /*with_lost=*/true);
      parts.push_back(fmt::format("{}; it needs {} for itself, and too few {}have at most {}{}", has,
                                  GangText(job.nodes, job.max_nodes), may_return ? "that can be used " : "",
                                  CountText(largest, "device"),
                                  may_return ? "" : ", so that it can't start"));
    } else if (!allowance.Has(needs)) {
      parts.push_back(fmt::format("{}; it needs {}", has, needs));
    } else if (const uint32_t each = (allowance.devices - allowance.used) / job.nodes;
               job.needs->whole_nodes && !room.CouldHoldOnSmall(job, each)) {
      full.push_back(fmt::format("{}; it needs {} for itself, of at most {} each by what is left", has,
                                 GangText(job.nodes, job.max_nodes), CountText(each, "device")));
    }
  }
  if (parts.empty()) parts = std::move(full);
  if (!parts.empty()) return fmt::format("{}", fmt::join(parts, "; "));
  return fmt::format("{}; it needs {}, and what is left is kept for an earlier job of theirs",
                     fmt::join(kept, "; "), needs);
}

/// "; position 2, behind job 7 (rn50-c)", and what its age adds to its priority.
std::string PlaceText(const Snapshot& cluster, const Waiting& waiting) {
  if (waiting.position == 0) return "";
  const int aged = waiting.job.aged;
  const std::string age = aged == 0 ? "" : fmt::format(", with {} more priority for its wait", aged);
  if (waiting.ahead == nullptr) return fmt::format("; position {} in the queue{}", waiting.position, age);
  return fmt::format("; position {}, behind {}{}", waiting.position, NameOfJob(cluster, *waiting.ahead), age);
}

}  // namespace

std::string CountText(uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string NameOfJob(JobId id, const std::string& name) { return fmt::format("job {} ({})", id, name); }

std::string NameOfJob(const Snapshot& cluster, JobId id) {
  if (id == kForeignHolder) return "a run of another cluster";
  const auto name = cluster.job_names.find(id);
  return name == cluster.job_names.end() ? fmt::format("job {}", id) : NameOfJob(id, name->second);
}

std::string NameOfJob(const Snapshot& cluster, const QueuedJob& job) {
  return job.name.empty() ? NameOfJob(cluster, job.id) : NameOfJob(job.id, job.name);
}

std::string TimeText(Duration time) {
  using std::chrono::duration_cast;
  const auto minutes = duration_cast<std::chrono::minutes>(time + std::chrono::seconds(30)).count();
  if (minutes >= 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  if (time >= std::chrono::minutes(2)) return fmt::format("{} min", minutes);
  return fmt::format("{} s", std::max<int64_t>(duration_cast<std::chrono::seconds>(time).count(), 0));
}

std::string InText(Duration time, bool estimate) {
  return fmt::format("in {}{}{}", estimate ? "about " : "", TimeText(time), estimate ? "" : " at the latest");
}

std::vector<const NodeSlots*> NodesInReach(const Snapshot& cluster, Layout& layout, const QueuedJob& job) {
  const bool matters = !job.folder.empty() && job.resumes_with != NodeId();
  const NodeSlots* with = matters ? cluster.NodeOf(job.resumes_with) : nullptr;
  const Layout::Groups* groups = with != nullptr ? &*layout.GroupsFor(job.folder) : nullptr;
  std::vector<const NodeSlots*> nodes;
  nodes.reserve(cluster.nodes.size());
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    const NodeSlots* node = &cluster.nodes[i];
    if (with == nullptr || (*groups)[i] == (*groups)[static_cast<size_t>(with - cluster.nodes.data())])
      nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> ExplainUnusable(const std::vector<const NodeSlots*>& nodes, const QueuedJob& job) {
  constexpr size_t kMost = 3;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // in the order of nodes
  size_t others = 0;
  NodesCheck check(job.needs);
  for (const NodeSlots* node : nodes) {
    if (node->usable || job.IsTooLarge(*node) || check.RoomFor(*node) < job.ranks_per_node) continue;
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [node](const auto& reason) { return reason.first == node->why_not; });
    if (same == reasons.end()) {
      if (reasons.size() == kMost) {
        ++others;
        continue;
      }
      same = reasons.insert(reasons.end(), {node->why_not, {}});
    }
    same->second.push_back(node->id.name());
  }
  std::vector<std::string> out;
  for (auto& [why, names] : reasons) {
    std::string text = fmt::format("node {} {}", names.front(), why);
    const size_t more = names.size() > kMost ? names.size() - kMost : 0;
    names.resize(names.size() - more);
    names.erase(names.begin());
    if (!names.empty()) text += fmt::format(" (and so {}", fmt::join(names, ", "));
    if (more > 0) text += fmt::format(" and {}", CountText(more, "more node"));
    if (!names.empty()) text += ")";
    out.push_back(std::move(text));
  }
  if (others > 0)
    out.push_back(fmt::format("{} {} nothing now either", CountText(others, "more node"),
                              others == 1 ? "takes" : "take"));
  return out;
}

std::string ExplainEnd(const Snapshot& cluster, JobId id) {
  const auto end = cluster.ends.find(id);
  const auto holder = cluster.holders.find(id);
  const bool leaves = holder != cluster.holders.end() && holder->second.Leaves();
  if (end == cluster.ends.end() || leaves || cluster.retrying.contains(id)) return "";
  return fmt::format(" and ends {}", TimeUntil(cluster, end->second, cluster.estimated.contains(id)));
}

Waiting WaitingAt(const std::vector<QueuedJob>& queue, size_t place) {
  return {queue[place], queue[place].code, place + 1, place > 0 ? &queue[place - 1] : nullptr};
}

std::string ExplainWait(const Snapshot& cluster, const Waiting& waiting) {
  return WaitTexts(cluster).Of(waiting);
}

Room& WaitTexts::room() {
  if (!layout_) layout_ = std::make_shared<Layout>(cluster_.nodes);
  if (!room_) room_.emplace(cluster_.nodes, layout_);
  return *room_;
}

std::string WaitTexts::Explain(const Waiting& waiting) {
  const QueuedJob& job = waiting.job;
  const std::string position = PlaceText(cluster_, waiting);
  const auto needs_and_free = [&] {
    const Fit fit = room().FitOf(job);
    return std::pair(NeedsOf(room(), job, "free ", fit), FreeText(fit));
  };
  switch (waiting.code) {
    case ReasonCode::kNoNodes:
      return fmt::format("no node has joined yet; start imgagent on one{}", position);
    case ReasonCode::kNeverFits:
      return ExplainNeverFits(cluster_, room(), job) + position;
    case ReasonCode::kWaitsForDevices:
      room();
      return ExplainDevices(cluster_, *layout_, *room_, job) + position;
    case ReasonCode::kWaitsBehindJob: {
      const auto [needs, free] = needs_and_free();
      const Reservation* const kept = kept_.From(job);
      if (kept == nullptr) {
        return fmt::format("{}; {}, but those before it in the queue come first{}", needs, free, position);
      }
      return fmt::format("{}; what is free is kept for {}, which comes first{}{}{}", needs,
                         NameOfJob(cluster_, kept->job), StartOf(cluster_, *kept, " and"),
                         OwnStart(cluster_, job), position);
    }
    case ReasonCode::kQuota:
      return ExplainQuota(cluster_, room(), job) + position;
    default: {
      const auto [needs, free] = needs_and_free();
      return fmt::format("{}; {}; who comes when is decided in a moment{}", needs, free, position);
    }
  }
}

std::string ExplainVictim(const Snapshot& cluster, const std::vector<JobId>& victims, JobId victim) {
  Duration at_risk{};
  std::vector<std::string> others;
  for (const JobId id : victims) {
    at_risk += cluster.holders.at(id).at_risk;
    if (id != victim) others.push_back(NameOfJob(cluster, id));
  }
  const double minutes = std::chrono::duration<double, std::ratio<60>>(at_risk).count();
  const Holder& own = cluster.holders.at(victim);
  const std::string age = own.aged == 0 ? "" : fmt::format(" with {} more for its wait", own.aged);
  return fmt::format(
      "its own is {}{}, and of what would make room {}loses the least, {:.1f} device-minutes of work",
      own.priority - own.aged, age,
      others.empty() ? "its end " : fmt::format("its end with that of {} ", fmt::join(others, ", ")),
      minutes);
}

std::string WaitTexts::Of(const Waiting& waiting) {
  const QueuedJob& job = waiting.job;
  const bool by_shape = waiting.code == ReasonCode::kWaitsForDevices ||
                        waiting.code == ReasonCode::kWaitsBehindJob || waiting.code == ReasonCode::kNeverFits;
  if (!by_shape) return Explain(waiting);
  const bool by_size = waiting.code != ReasonCode::kNeverFits && job.needs->whole_nodes;
  if (!by_size || cluster_.allowances.empty()) return OfShape(waiting);
  if (!allowances_) allowances_.emplace(cluster_);
  const auto within = allowances_->Within(job);
  return within ? OfShape({*within, waiting.code, waiting.position, waiting.ahead}) : OfShape(waiting);
}

std::string WaitTexts::OfShape(const Waiting& waiting) {
  const QueuedJob& job = waiting.job;
  // For whom what is free is kept.
  const size_t before = waiting.code == ReasonCode::kWaitsBehindJob ? kept_.Before(job) : 0;
  Shape shape(waiting.code, job.priority, job.nodes, job.max_nodes, job.ranks_per_node, job.most_devices,
              job.needs, job.folder, job.resumes_with, job.avoid, before,
              ReservationOf(*cluster_.reserved, job.id));
  const auto [known, is_new] = known_.try_emplace(std::move(shape));
  if (is_new) known->second = Explain({.job = job, .code = waiting.code});
  return known->second + PlaceText(cluster_, waiting);
}

std::string ExplainMatch(const LogMatch& match) {
  return fmt::format("its log says \"{}\"{}{} (pattern {})", match.line, match.label.empty() ? "" : ": ",
                     match.label, match.pattern);
}

}  // namespace imgd
