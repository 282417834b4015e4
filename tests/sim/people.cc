// What people ask of jobs and nodes while the cluster lives. A new kind of order is a row in the table.
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

std::optional<JobId> AnOpenJob(World& world) {
  std::vector<JobId> open;
  for (const auto& [id, job] : world.daemon.stored()) {
    if (!IsFinal(job.state)) open.push_back(id);
  }
  if (open.empty()) return std::nullopt;
  return open[world.dice.Below(open.size())];
}

template <typename Order>
void OnAJob(World& world, const char* what, const Order& order) {
  const auto job = AnOpenJob(world);
  if (!job) return;
  world.Say("user: {} job {}", what, *job);
  order(*job);
}

void Pauses(World& world) {
  OnAJob(world, "pauses", [&world](JobId job) {
    world.daemon.Pause(job);
    world.time.After(world.dice.Between(seconds(5), minutes(6)), [&world, job] {
      world.Say("user: resumes job {}", job);
      world.daemon.Resume(job);
    });
  });
}

void Moves(World& world) {
  OnAJob(world, "moves", [&world](JobId job) { world.daemon.Move(job); });
}

void ChangesPriority(World& world) {
  OnAJob(world, "changes the priority of",
         [&world](JobId job) { world.daemon.SetPriority(job, static_cast<int>(world.dice.Below(4)) - 1); });
}

/// Longer or shorter, or none, or one where there was none.
void ChangesTimeLimit(World& world) {
  OnAJob(world, "changes the time limit of", [&world](JobId job) {
    TimeLimitChange change{.by_ms = 1000 * (static_cast<int64_t>(world.dice.Below(1200)) - 300)};
    if (world.dice.Chance(0.3)) change.to_ms = 1000 * static_cast<int64_t>(world.dice.Below(2400));
    world.daemon.SetTimeLimit(job, change);
  });
}

void Cancels(World& world) {
  OnAJob(world, "cancels, after a checkpoint,", [&world](JobId job) { world.daemon.Cancel(job, true); });
}

void SetsAside(World& world, bool drain) {
  const NodeId node = world.agents[world.dice.Below(world.agents.size())]->id();
  world.Say("user: {} {}", drain ? "drains" : "cordons", node);
  world.daemon.SetAside(node, drain);
  world.time.After(world.dice.Between(seconds(10), minutes(6)), [&world, node, drain] {
    world.Say("user: uses {} again", node);
    world.daemon.Return(node, drain);
  });
}

/// Refused but for the lost ones.
void Forgets(World& world) {
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    if (node.state != NodeState::kLost) continue;
    world.Say("user: forgets {}", id);
    world.daemon.Forget(id);
    return;
  }
}

void Drains(World& world) { SetsAside(world, true); }
void Cordons(World& world) { SetsAside(world, false); }

struct Order {
  uint32_t weight;
  void (*give)(World&);
};

constexpr Order kOrders[] = {
    {20, Pauses}, {12, Moves},  {12, ChangesPriority}, {10, ChangesTimeLimit},
    {4, Cancels}, {10, Drains}, {8, Cordons},          {6, Forgets},
};

}  // namespace

void DrawOrder(World& world) {
  uint64_t sum = 0;
  for (const auto& order : kOrders) sum += order.weight;
  uint64_t drawn = world.dice.Below(sum);
  const Order* order = kOrders;
  while (drawn >= order->weight) drawn -= (order++)->weight;
  order->give(world);
}

void TidyUp(World& world) {
  const auto& state = world.daemon.reactor().state();
  for (const auto& [id, job] : state.jobs()) {
    if (job.state == JobState::kPaused) world.daemon.Resume(id);
  }
  for (const auto& [id, node] : state.nodes()) {
    if (node.set_aside) world.daemon.Return(id, node.set_aside->drain);
  }
}

}  // namespace imgd::sim
