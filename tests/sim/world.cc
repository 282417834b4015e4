#include "tests/sim/world.h"

#include <cstdio>

#include "tests/sim/invariants.h"

namespace imgd::sim {

using std::chrono::minutes;
using std::chrono::seconds;

World::World(uint64_t seed, Shape of, bool trace)
    : dice(seed), shape(of), network(*this), daemon(*this), gangs(*this), trace_(trace) {
  for (uint32_t i = 0; i < shape.nodes; ++i) {
    const auto devices = static_cast<uint32_t>(shape.most_devices > 4 ? shape.most_devices
                                                                      : 1 + dice.Below(shape.most_devices));
    const std::string name = fmt::format("n{:03}", i);
    agents.push_back(std::make_unique<Agent>(*this, name, "agent-of-" + name, devices,
                                             shape.two_storages && i % 2 == 1 ? "storage-b" : "storage-a"));
  }
}

void World::Print(const std::string& line) const {
  const double now = std::chrono::duration<double>(time.passed()).count();
  std::printf("%10.3f  %s\n", now, line.c_str());
}

void World::Break(const char* rule, std::string text) {
  Say("BROKEN: {}: {}", rule, text);
  findings_.push_back({rule, std::move(text)});
}

const std::vector<Finding>& World::Live() {
  for (auto& agent : agents) {
    time.After(dice.Between(seconds(0), seconds(20)), [&agent] { agent->Connect(); });
  }
  SubmitNext();
  if (shape.between_faults > Duration::zero()) FailNext();
  time.After(shape.busy, [this] { BeQuiet(); });
  const uint64_t most = 2'000'000 + uint64_t{200'000} * shape.nodes;
  while (findings_.empty() && !ended_ && time.Step()) {
    if (time.count() > most) Break("the queue drains", "something is said over and over");
  }
  return findings_;
}

void World::SubmitNext() {
  time.After(dice.Exponential(shape.between_jobs), [this] {
    if (quiet_) return;
    if (dice.Chance(0.08)) {
      CancelOne();
    } else {
      Submit(DrawJob(dice, shape, ++submitted_));
    }
    SubmitNext();
  });
}

void World::Submit(const JobTruth& job) {
  const auto& wanted = job.submission;
  Say("user: submits {}: {} nodes (at most {}) of {} devices, priority {}, {} s of training", wanted.name,
      wanted.nodes, std::max(wanted.nodes, wanted.max_nodes), wanted.ranks_per_node, wanted.priority,
      std::chrono::duration_cast<seconds>(job.work).count());
  truths[wanted.name] = job;
  daemon.Submit(wanted);
}

void World::CancelOne() {
  std::vector<JobId> open;
  for (const auto& [id, job] : daemon.stored()) {
    if (!IsFinal(job.state)) open.push_back(id);
  }
  if (open.empty()) return;
  const JobId job = open[dice.Below(open.size())];
  const bool checkpoint_first = dice.Chance(0.4);
  Say("user: cancels job {}{}", job, checkpoint_first ? " after a checkpoint" : "");
  daemon.Cancel(job, checkpoint_first);
}

void World::FailNext() {
  time.After(dice.Exponential(shape.between_faults), [this] {
    if (quiet_) return;
    DrawFault(*this);
    FailNext();
  });
}

/// Nothing fails any more; what was cut off is back. Then every job has to come to its end.
void World::BeQuiet() {
  Say("from now on nothing fails");
  quiet_ = true;
  daemon.EmptyDisk();
  network.EndStalls();
  for (auto& agent : agents) agent->Mend();
  CheckDrained(time.now().steady + LongestDrain());
}

/// If all that is left ran one after the other.
Duration World::LongestDrain() const {
  Duration sum = minutes(30);
  for (const auto& [id, job] : daemon.stored()) {
    if (!IsFinal(job.state)) sum += truths.at(job.name).work + minutes(5);
  }
  return sum;
}

bool World::Drained() const {
  std::vector<Space> space;
  for (const auto& agent : agents) {
    if (agent->gone_for_ever()) continue;
    const NodeRecord* node = daemon.reactor().state().FindNode(agent->id());
    if (agent->runs() > 0 || !agent->on() || node == nullptr) return false;
    space.push_back({node, static_cast<uint32_t>(agent->devices())});
  }
  for (const auto& [id, job] : daemon.stored()) {
    if (IsFinal(job.state)) continue;
    // One that only nodes which are gone for ever could hold waits for them.
    if (job.state != JobState::kQueued || Fits(*this, job, space)) return false;
  }
  return daemon.up();
}

/// The queue drains when the cluster is quiet, and agents forget the runs that have ended.
void World::CheckDrained(Instant deadline) {
  if (Drained()) {
    ended_ = true;
    return;
  }
  if (time.now().steady < deadline) {
    time.After(seconds(20), [this, deadline] { CheckDrained(deadline); });
    return;
  }
  std::string left;
  for (const auto& [id, job] : daemon.stored()) {
    if (!IsFinal(job.state))
      left += fmt::format(" job {} is {}: {};", id, NameOf(job.state), job.reason.text);
  }
  for (const auto& agent : agents) {
    if (agent->runs() > 0) left += fmt::format(" {} remembers {} runs;", agent->id(), agent->runs());
    if (!agent->on() && !agent->gone_for_ever()) left += fmt::format(" {} is off;", agent->id());
  }
  Break("the queue drains", "left:" + left);
}

}  // namespace imgd::sim
