#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "server/core/room.h"

/// Which jobs make room for one of a higher priority.
namespace imgd {
namespace {

/// Seats times jobs that are tried for them one after the other, at most: a few ms.
constexpr size_t kMostTries = 20'000;

/// What it takes to have jobs' devices. What is less is cheaper: that of the highest priority counts first,
/// and there the work that is lost.
class Price {
 public:
  void Add(const Holder& holder) {
    const auto at = std::find_if(levels_.begin(), levels_.end(),
                                 [&holder](const Level& level) { return level.priority <= holder.priority; });
    if (at != levels_.end() && at->priority == holder.priority) {
      at->at_risk += holder.at_risk;
      ++at->jobs;
    } else {
      levels_.insert(at, {holder.priority, holder.at_risk, 1});
    }
  }
  auto operator<=>(const Price&) const = default;

  /// Of one of somebody at least.
  int HighestPriority() const { return levels_.front().priority; }
  /// Of all of them, in seconds.
  double AtRisk() const {
    double sum = 0;
    for (const auto& level : levels_) sum += std::chrono::duration<double>(level.at_risk).count();
    return sum;
  }

 private:
  struct Level {
    int priority = 0;
    Duration at_risk{};
    uint32_t jobs = 0;
    auto operator<=>(const Level&) const = default;
  };
  std::vector<Level> levels_;  ///< the highest priority first
};

/// A node that the gang could have, where some give their devices back.
struct Seat {
  uint32_t node = 0;
  uint32_t lacks = 0;                             ///< of what is given back there
  std::vector<std::pair<JobId, uint32_t>> gives;  ///< who could give how much
  std::vector<JobId> pay;  ///< those of them who would have to, if it were for this node alone
  Price price;             ///< of these
};

/// Its devices come to the gang by themselves.
bool IsLeft(const Holder& holder, const QueuedJob& job) {
  return holder.Leaves() && (holder.leaving != Leaving::kComesBack || holder.priority < job.Rank());
}

/// They can be taken for it.
bool CanBeTaken(const Holder& holder, const QueuedJob& job) {
  return holder.preemptible && !holder.Leaves() && holder.priority < job.priority;
}

enum class Will : uint8_t { kStays, kLeaves, kCanBeTaken };

/// What holders do for a gang, looked at once for each of them.
class Wills {
 public:
  Wills(const QueuedJob& job, const Holders& holders) {
    for (const auto& [id, holder] : holders) {
      if (IsLeft(holder, job)) {
        known_.emplace_hint(known_.end(), id, Will::kLeaves);
      } else if (CanBeTaken(holder, job)) {
        known_.emplace_hint(known_.end(), id, Will::kCanBeTaken);
        any_can_be_taken_ = true;
      }
    }
  }
  bool any_can_be_taken() const { return any_can_be_taken_; }
  Will Of(JobId holder) {
    if (holder == last_) return will_;
    const auto known = known_.find(holder);
    last_ = holder;
    return will_ = known == known_.end() ? Will::kStays : known->second;
  }

 private:
  boost::container::flat_map<JobId, Will> known_;  ///< of those who don't stay
  bool any_can_be_taken_ = false;
  JobId last_;  ///< many devices in a row have the same
  Will will_ = Will::kStays;
};

Price PriceOf(JobId id, const Holders& holders) {
  Price price;
  price.Add(holders.at(id));
  return price;
}

/// The cheapest first.
template <typename Jobs, typename IdOf>
std::vector<JobId> ByPrice(const Jobs& jobs, const Holders& holders, const IdOf& id_of) {
  std::vector<std::pair<Price, JobId>> priced;
  for (const auto& job : jobs) priced.emplace_back(PriceOf(id_of(job), holders), id_of(job));
  std::sort(priced.begin(), priced.end());
  std::vector<JobId> out;
  for (const auto& [price, id] : priced) out.push_back(id);
  return out;
}

/// What the gang lacks on the node and who could give it; nothing where all of them were not enough. Of a
/// node that it has for itself it lacks those who are there, whatever their devices. `does(i)`, `is_free(i)`:
/// of the node's i-th device.
template <typename Does, typename IsFree>
std::optional<Seat> SeatOn(uint32_t index, const NodeSlots& node, const Does& does, const IsFree& is_free,
                           const QueuedJob& job, Wills& wills) {
  Seat seat{.node = index};
  uint32_t has = 0;
  uint32_t could_have = 0;
  for (size_t i = 0; i < node.devices.size(); ++i) {
    const uint32_t counts = does(i) ? 1 : 0;
    if (counts == 0 && !job.needs->whole_nodes) continue;
    const Will will = is_free(i) ? Will::kLeaves : wills.Of(node.holders[i]);
    if (will == Will::kLeaves) {
      has += counts;
    } else if (will == Will::kCanBeTaken) {
      could_have += counts;
      const JobId holder = node.holders[i];
      auto known = std::find_if(seat.gives.begin(), seat.gives.end(),
                                [holder](const auto& item) { return item.first == holder; });
      if (known == seat.gives.end()) known = seat.gives.insert(known, {holder, 0});
      ++known->second;
    } else if (job.needs->whole_nodes) {
      return std::nullopt;
    }
  }
  if (has + could_have < job.ranks_per_node) return std::nullopt;
  if (job.needs->whole_nodes) {
    for (auto& [id, devices] : seat.gives) devices = 1;
    seat.lacks = static_cast<uint32_t>(seat.gives.size());
  } else {
    seat.lacks = job.ranks_per_node - std::min(has, job.ranks_per_node);
  }
  return seat;
}

/// Who would have to pay for the seat alone.
void FindPayers(Seat& seat, const Holders& holders) {
  if (seat.lacks == 0) return;
  uint32_t given = 0;
  for (const JobId id : ByPrice(seat.gives, holders, [](const auto& item) { return item.first; })) {
    if (given >= seat.lacks) break;
    seat.pay.push_back(id);
    seat.price.Add(holders.at(id));
    for (const auto& [giver, devices] : seat.gives) given += giver == id ? devices : 0;
  }
}

/// The seats to which each job could give something, and how much.
using SeatsOf = std::map<JobId, std::vector<std::pair<uint32_t, uint32_t>>>;

/// Who is chosen, and how many of the seats the gang has then.
class Choice {
 public:
  /// `of` must outlive it and its copies.
  Choice(const std::vector<Seat>& seats, const SeatsOf& of) : of_(&of) {
    for (const auto& seat : seats) {
      lacks_.push_back(seat.lacks);
      had_ += seat.lacks == 0 ? 1 : 0;
    }
  }

  bool Add(JobId id) {
    if (!chosen_.insert(id).second) return false;
    for (const auto& [seat, gives] : of_->at(id)) Change(seat, -static_cast<int64_t>(gives));
    return true;
  }
  void Drop(JobId id) {
    chosen_.erase(id);
    for (const auto& [seat, gives] : of_->at(id)) Change(seat, gives);
  }

  uint32_t had() const { return had_; }
  bool Has(uint32_t seat) const { return lacks_[seat] <= 0; }
  const std::set<JobId>& chosen() const { return chosen_; }

 private:
  void Change(uint32_t seat, int64_t by) {
    had_ -= Has(seat) ? 1 : 0;
    lacks_[seat] += by;
    had_ += Has(seat) ? 1 : 0;
  }

  const SeatsOf* of_;
  std::vector<int64_t> lacks_;  ///< of each seat; what is given beyond it counts too
  uint32_t had_ = 0;
  std::set<JobId> chosen_;
};

/// The cheapest set of jobs that is found for so many seats: of three that are looked for in different ways,
/// each without those who can be spared. The cheapest there is would take too long to find.
class VictimSearch {
 public:
  /// `seats`: so many at least, the cheapest first.
  VictimSearch(const std::vector<Seat>& seats, uint32_t wanted, const Holders& holders)
      : seats_(seats), wanted_(wanted), holders_(holders) {
    for (uint32_t i = 0; i < seats.size(); ++i) {
      for (const auto& [id, gives] : seats[i].gives) of_[id].emplace_back(i, gives);
    }
  }

  std::pair<Price, std::set<JobId>> Find() {
    Offer(SeatBySeat());
    if (const auto one = CheapestAlone()) Offer(*one);
    if (seats_.size() * wanted_ <= kMostTries) Offer(MostSeatsForItsPrice());
    return *best_;
  }

 private:
  /// Those who pay for the cheapest seats, as if each seat were for itself.
  Choice SeatBySeat() const {
    Choice choice(seats_, of_);
    for (size_t i = 0; i < wanted_; ++i) {
      for (const JobId id : seats_[i].pay) choice.Add(id);
    }
    return choice;
  }

  /// One that gives all that is lacking may be cheaper than several who give some of it.
  std::optional<Choice> CheapestAlone() const {
    Choice choice(seats_, of_);
    std::optional<std::pair<Price, JobId>> least;
    for (const auto& [id, seats] : of_) {
      if (choice.had() + seats.size() < wanted_) continue;
      choice.Add(id);
      const std::pair costs(PriceOf(id, holders_), id);
      if (choice.had() >= wanted_ && (!least || costs < *least)) least = costs;
      choice.Drop(id);
    }
    if (!least) return std::nullopt;
    choice.Add(least->second);
    return choice;
  }

  /// Again and again those who give a further seat, or several, for the least each.
  Choice MostSeatsForItsPrice() const {
    Choice choice(seats_, of_);
    while (choice.had() < wanted_) {
      std::optional<std::pair<int, double>> least;
      uint32_t next = 0;
      for (uint32_t i = 0; i < seats_.size(); ++i) {
        if (choice.Has(i)) continue;
        const auto costs = CostsOf(seats_[i].pay, choice);
        if (least && costs >= *least) continue;
        least = costs;
        next = i;
      }
      for (const JobId id : seats_[next].pay) choice.Add(id);
    }
    return choice;
  }

  /// What these cost who are not chosen yet: their highest priority, and work for each seat that they add.
  std::pair<int, double> CostsOf(const std::vector<JobId>& pay, Choice& choice) const {
    const uint32_t had = choice.had();
    Price price;
    std::vector<JobId> added;
    for (const JobId id : pay) {
      if (!choice.Add(id)) continue;
      added.push_back(id);
      price.Add(holders_.at(id));
    }
    const uint32_t gained = std::min(choice.had(), wanted_) - had;
    for (const JobId id : added) choice.Drop(id);
    return {price.HighestPriority(), price.AtRisk() / gained};
  }

  /// What one gives back on one node may spare another elsewhere.
  void Offer(Choice choice) {
    const auto cheapest = ByPrice(choice.chosen(), holders_, [](JobId id) { return id; });
    for (auto dearest = cheapest.rbegin(); dearest != cheapest.rend(); ++dearest) {
      choice.Drop(*dearest);
      if (choice.had() < wanted_) choice.Add(*dearest);
    }
    Price price;
    for (const JobId id : choice.chosen()) price.Add(holders_.at(id));
    if (!best_ || price < best_->first) best_ = {price, choice.chosen()};
  }

  const std::vector<Seat>& seats_;
  uint32_t wanted_;
  const Holders& holders_;
  SeatsOf of_;
  std::optional<std::pair<Price, std::set<JobId>>> best_;
};

}  // namespace

std::optional<EndTimes> EndsIfTaken(const QueuedJob& job, const EndTimes& ends, const Holders& holders,
                                    Instant asked) {
  EndTimes taken;
  for (const auto& [id, holder] : holders) {
    if (CanBeTaken(holder, job)) taken.emplace_hint(taken.end(), id, asked + holder.to_stop);
  }
  if (taken.empty()) return std::nullopt;
  EndTimes all;
  all.reserve(taken.size() + ends.size());
  auto next = taken.begin();
  for (const auto& [id, end] : ends) {
    for (; next != taken.end() && next->first < id; ++next) all.insert(all.end(), *next);
    const bool both = next != taken.end() && next->first == id;
    all.emplace_hint(all.end(), id, both ? std::min(end, next->second) : end);
    if (both) ++next;
  }
  all.insert(next, taken.end());
  return all;
}

std::optional<std::vector<JobId>> Room::ChooseVictims(const QueuedJob& job, const Holders& holders) {
  Wills wills(job, holders);
  if (!wills.any_can_be_taken()) return std::nullopt;
  std::optional<std::pair<Price, std::set<JobId>>> best;
  const QueuedJob anywhere = Anywhere(job);
  const Frame& frame = *ViewOf(anywhere).frame;
  for (const Group& group : GroupsFor(anywhere)) {
    std::vector<Seat> seats;
    size_t left_nodes = group.of->nodes.size();
    for (const uint32_t i : group.of->nodes) {
      if (seats.size() + left_nodes-- < job.nodes) break;  // too many could not be had already
      const NodeSlots& node = (*nodes_)[i];
      if (!node.usable || job.KeepsOff(node)) continue;
      const auto& does = layout_->JudgedOf(frame, i).does;
      auto seat = SeatOn(
          i, node, [&does](size_t device) { return does.empty() || does[device]; },
          [&](size_t device) { return free_.Contains(layout_->FirstOf(i) + device); }, job, wills);
      if (seat) seats.push_back(std::move(*seat));
    }
    if (seats.size() < job.nodes) continue;
    const auto left =
        std::count_if(seats.begin(), seats.end(), [](const Seat& seat) { return seat.lacks == 0; });
    if (left >= static_cast<std::ptrdiff_t>(job.nodes)) return std::vector<JobId>();
    for (Seat& seat : seats) FindPayers(seat, holders);
    std::sort(seats.begin(), seats.end(), [](const Seat& a, const Seat& b) {
      return std::tie(a.price, a.node) < std::tie(b.price, b.node);
    });
    auto found = VictimSearch(seats, job.nodes, holders).Find();
    if (!best || found.first < best->first) best = std::move(found);
  }
  if (!best) return std::nullopt;
  return std::vector<JobId>(best->second.begin(), best->second.end());
}

}  // namespace imgd
