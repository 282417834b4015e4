// The policies that ours is compared with. They know nothing of the core.
#include <algorithm>
#include <limits>
#include <list>
#include <set>

#include "tests/sim/replay.h"

namespace imgd::sim {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();

/// Free devices of each node.
using Free = std::vector<uint32_t>;

struct Running {
  double end_s;    ///< when it ends
  double asked_s;  ///< when it has to end by what it asked for
  Outcome* outcome;
  std::vector<size_t> nodes;
};

/// The fullest nodes first, as ours.
std::optional<std::vector<size_t>> Find(const Free& free, const Outcome& gang) {
  const auto fit =
      std::count_if(free.begin(), free.end(), [&](uint32_t devices) { return devices >= gang.devices; });
  if (static_cast<uint64_t>(fit) < gang.nodes) return std::nullopt;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < free.size(); ++i) {
    if (free[i] >= gang.devices) fitting.push_back(i);
  }
  std::stable_sort(fitting.begin(), fitting.end(), [&](size_t a, size_t b) { return free[a] < free[b]; });
  fitting.resize(gang.nodes);
  return fitting;
}

class PeerReplay {
 public:
  PeerReplay(const std::vector<SwfJob>& jobs, Machine machine, bool backfills)
      : free_(machine.nodes, machine.devices), backfills_(backfills) {
    for (const auto& job : jobs) outcomes_.push_back(GangOf(job, machine));
  }

  std::vector<Outcome> Run() {
    auto next = outcomes_.begin();
    while (next != outcomes_.end() || !running_.empty()) {
      const double end = running_.empty() ? kForEver : running_.front().end_s;
      if (next != outcomes_.end() && next->job->submit_s < end) {
        now_ = next->job->submit_s;
        queue_.push_back(&*next++);
      } else {
        now_ = end;
        Release();
      }
      Plan();
    }
    return std::move(outcomes_);
  }

 private:
  void Release() {
    for (const size_t node : running_.front().nodes) free_[node] += running_.front().outcome->devices;
    running_.erase(running_.begin());
  }

  void Start(Outcome& outcome, std::vector<size_t> nodes) {
    outcome.start_s = now_;
    for (const size_t node : nodes) free_[node] -= outcome.devices;
    const double asked = outcome.job->requested_s > 0 ? now_ + outcome.job->requested_s : kForEver;
    Running running{now_ + outcome.job->run_s, asked, &outcome, std::move(nodes)};
    const auto place = std::upper_bound(running_.begin(), running_.end(), running,
                                        [](const Running& a, const Running& b) { return a.end_s < b.end_s; });
    running_.insert(place, std::move(running));
  }

  void Plan() {
    while (!queue_.empty()) {
      auto nodes = Find(free_, *queue_.front());
      if (!nodes) break;
      Start(*queue_.front(), std::move(*nodes));
      queue_.pop_front();
    }
    // With nobody behind it there is nothing to fill in, but the first is promised its start all the same.
    if (backfills_ && !queue_.empty()) Backfill();
  }

  /// When the first fits if all running jobs take as long as they asked for, and what is free then.
  std::pair<double, Free> Shadow(const Outcome& first) const {
    std::vector<const Running*> by_asked;
    for (const auto& running : running_) by_asked.push_back(&running);
    std::stable_sort(by_asked.begin(), by_asked.end(),
                     [](const Running* a, const Running* b) { return a->asked_s < b->asked_s; });
    Free free = free_;
    for (const Running* running : by_asked) {
      for (const size_t node : running->nodes) free[node] += running->outcome->devices;
      if (Find(free, first)) return {running->asked_s, free};
    }
    return {kForEver, free};
  }

  void Backfill() {
    Outcome& first = *queue_.front();
    auto [shadow, then] = Shadow(first);
    if (shadow < kForEver && !first.promised_s) first.promised_s = shadow;
    for (auto place = std::next(queue_.begin()); place != queue_.end();) {
      Outcome& outcome = **place;
      auto nodes = Find(free_, outcome);
      const double limit = outcome.job->requested_s > 0 ? outcome.job->requested_s : kForEver;
      const bool short_enough = now_ + limit <= shadow;
      if (nodes && !short_enough) {
        Free left = then;
        for (const size_t node : *nodes) left[node] -= outcome.devices;
        if (Find(left, first)) {
          then = left;
        } else {
          nodes.reset();
        }
      }
      if (!nodes) {
        ++place;
        continue;
      }
      Start(outcome, std::move(*nodes));
      place = queue_.erase(place);
    }
  }

  Free free_;
  bool backfills_;
  double now_ = 0;
  std::vector<Outcome> outcomes_;
  std::list<Outcome*> queue_;
  std::vector<Running> running_;  ///< by end
};

}  // namespace

Replay ReplayFifo(const std::vector<SwfJob>& jobs, Machine machine) {
  return {"FIFO", PeerReplay(jobs, machine, false).Run()};
}

Replay ReplayEasy(const std::vector<SwfJob>& jobs, Machine machine) {
  return {"EASY", PeerReplay(jobs, machine, true).Run()};
}

}  // namespace imgd::sim
