// What goes wrong with machines, streams and the daemon. A new fault is a row in the table.
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

void StreamBreaks(World& world, Agent& agent) {
  world.Say("{}: its stream breaks", agent.id());
  if (agent.session() != 0) world.network.Break(agent.session());
}

/// Shorter than it takes to call a node out of reach, up to much longer than it takes to call it lost.
void ControlIsCutOff(World& world, Agent& agent) {
  constexpr auto kLost = seconds(45);
  const Duration time = world.dice.Chance(0.5) ? world.dice.Between(seconds(1), seconds(20))
                                               : world.dice.Between(seconds(20), 5 * kLost);
  agent.CutOff(time);
}

void AllIsCutOff(World& world, Agent& agent) {
  ControlIsCutOff(world, agent);
  world.gangs.CutOff(agent);
}

void AgentRestarts(World& world, Agent& agent) {
  agent.RestartAgent(world.dice.Between(seconds(1), minutes(1)));
}

void MachineReboots(World& world, Agent& agent) {
  agent.Reboot(world.dice.Between(seconds(5), minutes(3)), false);
}

void PowerIsLost(World& world, Agent& agent) {
  agent.Reboot(world.dice.Between(seconds(20), minutes(6)), true);
}

void MachineDies(World& world, Agent& agent) {
  if (world.agents.size() < 3) return;
  agent.DieForEver();
}

void AnotherClusterComes(World& world, Agent& agent) {
  agent.Reboot(world.dice.Between(seconds(1), seconds(20)), false);
  world.time.After(milliseconds(500), [&world, &agent] {
    if (!agent.on())
      world.time.After(seconds(20), [&world, &agent] {
        agent.RestartAgent(seconds(2));
        agent.RunForeign(world.dice.Between(seconds(30), minutes(5)));
      });
  });
}

void DaemonCrashes(World& world, Agent&) {
  world.Say("imgd: is killed");
  world.daemon.Crash(world.dice.Between(milliseconds(200), minutes(1)));
}

void DaemonSleeps(World& world, Agent&) {
  const Duration time = world.dice.Between(seconds(4), minutes(2));
  world.Say("imgd: sleeps for {} s", std::chrono::duration_cast<seconds>(time).count());
  world.daemon.Sleep(time);
}

void DiskIsFull(World& world, Agent&) {
  world.Say("imgd: its disk is full");
  world.daemon.FillDisk(world.dice.Between(seconds(1), seconds(30)));
}

/// A GPU is broken and nobody has noticed.
void NodeFallsSick(World& world, Agent& agent) {
  agent.FallSick(world.dice.Between(minutes(3), minutes(15)));
}

void NodesDiskIsFull(World& world, Agent& agent) {
  agent.FillDisk(world.dice.Between(seconds(10), minutes(4)));
}

/// A spot instance: two minutes, mostly; another machine of that name comes later.
void MachineIsTakenBack(World& world, Agent& agent) {
  const Duration in = world.dice.Chance(0.8) ? seconds(120) : world.dice.Between(seconds(2), minutes(5));
  agent.TakeBack(in, world.dice.Between(seconds(30), minutes(6)), world.dice.Chance(0.2));
}

/// Somebody started a second agent by the name of one that is there.
void SecondAgentComes(World& world, Agent& agent) {
  if (world.network.Passing(agent.session()) == nullptr) return;
  world.strangers.push_back(std::make_unique<Agent>(world, agent.id().name(), "second",
                                                    NodeTruth{.devices = 0, .storage = agent.storage()}));
  Agent& second = *world.strangers.back();
  second.Connect();
  world.time.After(seconds(30), [&second] { second.Leave(); });
}

struct Fault {
  uint32_t weight;
  void (*happen)(World&, Agent&);
};

constexpr Fault kFaults[] = {
    {20, StreamBreaks},   {15, ControlIsCutOff}, {8, AllIsCutOff},        {12, AgentRestarts},
    {10, MachineReboots}, {8, PowerIsLost},      {1, MachineDies},        {3, AnotherClusterComes},
    {10, DaemonCrashes},  {4, DaemonSleeps},     {3, DiskIsFull},         {4, SecondAgentComes},
    {5, NodeFallsSick},   {4, NodesDiskIsFull},  {9, MachineIsTakenBack},
};

}  // namespace

void DrawFault(World& world) {
  uint64_t sum = 0;
  for (const auto& fault : kFaults) sum += fault.weight;
  uint64_t drawn = world.dice.Below(sum);
  const Fault* fault = kFaults;
  while (drawn >= fault->weight) drawn -= (fault++)->weight;
  fault->happen(world, *world.agents[world.dice.Below(world.agents.size())]);
}

}  // namespace imgd::sim
