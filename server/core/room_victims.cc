#include <algorithm>
#include <set>
#include <tuple>

#include "server/core/room.h"

/// Which jobs make room for one of a higher priority.
namespace imgd {
namespace {

/// What it takes to have a job's devices; what is less is cheaper.
struct Price {
  int priority = std::numeric_limits<int>::min();  ///< the highest of those who pay
  Duration at_risk{};                              ///< of all who pay
  auto operator<=>(const Price&) const = default;

  void Add(const Holder& holder) {
    priority = std::max(priority, holder.priority);
    at_risk += holder.at_risk;
  }
};

/// A node that the gang could have, where some give their devices back.
struct Seat {
  Price price;
  uint32_t node = 0;
  uint32_t free = 0;                  ///< devices that do and that nobody has to give back
  std::map<JobId, uint32_t> devices;  ///< of those who could give some back, how many that do
  std::vector<JobId> pay;             ///< those of them who have to
  auto Key() const { return std::tie(price, node); }
};

/// Its devices come to the gang by themselves.
bool IsLeft(const Holder& holder, const QueuedJob& job) {
  return holder.leaving && (!holder.comes_back || holder.priority < job.priority);
}

/// They can be taken for it.
bool CanBeTaken(const Holder& holder, const QueuedJob& job) {
  return holder.preemptible && !holder.leaving && holder.priority < job.priority;
}

/// The cheapest first.
std::vector<JobId> ByPrice(const std::set<JobId>& jobs, const std::map<JobId, Holder>& holders) {
  std::vector<std::pair<Price, JobId>> priced;
  for (const JobId id : jobs) {
    Price price;
    price.Add(holders.at(id));
    priced.emplace_back(price, id);
  }
  std::sort(priced.begin(), priced.end());
  std::vector<JobId> out;
  for (const auto& [price, id] : priced) out.push_back(id);
  return out;
}

/// The cheapest way to so many devices of the node; nothing where there is none.
std::optional<Seat> SeatOn(uint32_t index, const NodeSlots& node, const std::vector<uint32_t>& free,
                           const QueuedJob& job, const std::map<JobId, Holder>& holders) {
  Seat seat{.node = index};
  for (size_t i = 0; i < node.devices.size(); ++i) {
    const bool does = node.DeviceDoes(job.needs, i);
    if (!does && !job.needs.whole_nodes) continue;
    const auto holder = holders.find(node.holders[i]);
    if (std::binary_search(free.begin(), free.end(), node.devices[i]) ||
        (holder != holders.end() && IsLeft(holder->second, job))) {
      seat.free += does ? 1 : 0;
    } else if (holder != holders.end() && CanBeTaken(holder->second, job)) {
      seat.devices[holder->first] += does ? 1 : 0;
    } else if (job.needs.whole_nodes) {
      return std::nullopt;
    }
  }
  std::set<JobId> could;
  for (const auto& [id, count] : seat.devices) could.insert(id);
  uint32_t has = seat.free;
  for (const JobId id : ByPrice(could, holders)) {
    if (has >= job.ranks_per_node && !job.needs.whole_nodes) break;
    seat.pay.push_back(id);
    seat.price.Add(holders.at(id));
    has += seat.devices[id];
  }
  if (has < job.ranks_per_node) return std::nullopt;
  return seat;
}

/// Without those who are not needed: what one gives back on one node may spare another elsewhere.
std::set<JobId> Needed(const std::vector<Seat>& seats, const QueuedJob& job,
                       const std::map<JobId, Holder>& holders) {
  std::set<JobId> victims;
  for (const auto& seat : seats) victims.insert(seat.pay.begin(), seat.pay.end());
  if (job.needs.whole_nodes) return victims;
  const auto spare = [&](JobId spared) {
    return std::all_of(seats.begin(), seats.end(), [&](const Seat& seat) {
      uint32_t has = seat.free;
      for (const auto& [id, count] : seat.devices) {
        if (id != spared && victims.contains(id)) has += count;
      }
      return has >= job.ranks_per_node;
    });
  };
  const auto cheapest = ByPrice(victims, holders);
  for (auto dearest = cheapest.rbegin(); dearest != cheapest.rend(); ++dearest) {
    if (spare(*dearest)) victims.erase(*dearest);
  }
  return victims;
}

}  // namespace

std::vector<JobId> Room::ChooseVictims(const QueuedJob& job, const std::map<JobId, Holder>& holders) {
  const bool any = std::any_of(holders.begin(), holders.end(),
                               [&job](const auto& holder) { return CanBeTaken(holder.second, job); });
  if (!any) return {};
  std::optional<Price> best;
  std::set<JobId> victims;
  for (const Group& group : GroupsFor(job)) {
    std::vector<Seat> seats;
    for (const uint32_t i : group.members) {
      const NodeSlots& node = (*nodes_)[i];
      if (!node.usable || job.avoid.contains(node.id)) continue;
      if (auto seat = SeatOn(i, node, FreeDevices(i), job, holders)) seats.push_back(std::move(*seat));
    }
    if (seats.size() < job.nodes) continue;
    std::sort(seats.begin(), seats.end(), [](const Seat& a, const Seat& b) { return a.Key() < b.Key(); });
    seats.resize(job.nodes);
    auto needed = Needed(seats, job, holders);
    Price price;
    for (const JobId id : needed) price.Add(holders.at(id));
    if (best && price >= *best) continue;
    best = price;
    victims = std::move(needed);
  }
  return {victims.begin(), victims.end()};
}

}  // namespace imgd
