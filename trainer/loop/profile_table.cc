#include "trainer/loop/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

namespace imgd::trainer {
namespace {

constexpr size_t kMostName = 70;  ///< kernels have names of whole lines

struct Open {
  const ProfiledEvent* event;
  double in_others = 0;  ///< seconds, of what it called
};

double SecondsOf(const ProfiledEvent& event) {
  return static_cast<double>(event.end_ns - event.start_ns) / 1e9;
}

/// Walks through the events of one thread, which lie in one another like calls.
class Walk {
 public:
  explicit Walk(std::map<std::string, ProfiledCost>& costs) : costs_(costs) {}

  void Enter(const ProfiledEvent& event) {
    while (!open_.empty() && open_.back().event->end_ns <= event.start_ns) Leave();
    open_.push_back({&event});
  }

  void Leave() {
    const Open done = open_.back();
    open_.pop_back();
    const double seconds = SecondsOf(*done.event);
    if (!open_.empty()) open_.back().in_others += seconds;
    if (done.event->is_scope) return;
    auto& cost = costs_[done.event->name];
    cost.name = done.event->name;
    ++cost.calls;
    cost.self_seconds += std::max(seconds - done.in_others, 0.0);
    const bool in_itself = std::any_of(
        open_.begin(), open_.end(), [&](const Open& above) { return above.event->name == done.event->name; });
    if (!in_itself) cost.total_seconds += seconds;
  }

  void LeaveAll() {
    while (!open_.empty()) Leave();
  }

 private:
  std::map<std::string, ProfiledCost>& costs_;
  std::vector<Open> open_;
};

}  // namespace

std::vector<ProfiledCost> CostsOf(std::vector<ProfiledEvent> events, bool on_gpu) {
  std::erase_if(events, [&](const auto& event) { return event.on_gpu != on_gpu; });
  // What lasts longer comes first: it is what calls the other.
  std::ranges::sort(events, {}, [](const ProfiledEvent& event) {
    return std::tuple(event.thread, event.start_ns, -event.end_ns);
  });
  std::map<std::string, ProfiledCost> costs;
  Walk walk(costs);
  uint64_t thread = 0;
  for (const auto& event : events) {
    if (event.thread != thread) walk.LeaveAll();
    thread = event.thread;
    walk.Enter(event);
  }
  walk.LeaveAll();
  std::vector<ProfiledCost> out;
  for (auto& [name, cost] : costs) out.push_back(std::move(cost));
  std::ranges::stable_sort(out, std::greater<>{}, &ProfiledCost::self_seconds);
  return out;
}

std::string CostTable(const std::vector<ProfiledCost>& costs, const char* title, double seconds,
                      size_t most) {
  std::string out =
      fmt::format("{:>8}  {:>10}  {:>7}  {:>10}  {}\n", "calls", "self ms", "share", "total ms", title);
  for (size_t i = 0; i < std::min(most, costs.size()); ++i) {
    const auto& cost = costs[i];
    out += fmt::format("{:>8}  {:>10.2f}  {:>5.1f} %  {:>10.2f}  {}\n", cost.calls, 1000 * cost.self_seconds,
                       seconds > 0 ? 100 * cost.self_seconds / seconds : 0, 1000 * cost.total_seconds,
                       cost.name.substr(0, kMostName));
  }
  return out;
}

}  // namespace imgd::trainer
