#include "tests/sim/world.h"

#include <cstdio>

#include "tests/sim/invariants.h"

namespace imgd::sim {

using std::chrono::minutes;
using std::chrono::seconds;

namespace {

/// 2001-10-01, a Monday.
constexpr WallTime kMidnight{1'001'894'400'000'000};

}  // namespace

World::World(uint64_t seed, Shape of, bool trace)
    : dice(seed),
      shape(of),
      settings({.quotas = shape.quotas,
                .half_life = shape.half_life,
                .shares = shape.shares,
                .aging = shape.aging,
                .preemption = shape.preemption}),
      network(*this),
      daemon(*this),
      gangs(*this),
      trace_(trace) {
  if (shape.to_midnight > Duration::zero()) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(shape.to_midnight).count();
    time.SetWall({kMidnight.micros - left});
  }
  for (uint32_t i = 0; i < shape.nodes; ++i) {
    const std::string name = fmt::format("n{:03}", i);
    agents.push_back(std::make_unique<Agent>(*this, name, "agent-of-" + name, DrawNode(dice, shape, i)));
  }
}

void World::Print(const std::string& line) const {
  const double now = std::chrono::duration<double>(time.passed()).count();
  if (lines_ != nullptr) {
    lines_->push_back(fmt::format("{:10.6f}  {}", now, line));
  } else {
    std::printf("%10.3f  %s\n", now, line.c_str());
  }
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
  LookAfterNodes();
  if (shape.between_faults > Duration::zero()) FailNext();
  if (shape.between_orders > Duration::zero()) GiveOrders();
  if (shape.turns_end > Duration::zero()) time.After(shape.turns_end, [this] { EndTurns(); });
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

/// Nodes that imgd has set aside are used again by somebody, some time later.
void World::LookAfterNodes() {
  time.After(dice.Between(minutes(2), minutes(8)), [this] {
    for (const auto& [id, node] : daemon.reactor().state().nodes()) {
      if (!node.set_aside || node.set_aside->by == AsideBy::kUser || !dice.Chance(0.7)) continue;
      Say("user: uses {} again", id);
      daemon.Return(id, false);
    }
    LookAfterNodes();
  });
}

void World::GiveOrders() {
  time.After(dice.Exponential(shape.between_orders), [this] {
    if (quiet_) return;
    DrawOrder(*this);
    GiveOrders();
  });
}

void World::EndTurns() {
  Say("user: turns off that users and projects take turns");
  settings.half_life = Duration::zero();
  daemon.TakeUpSettings();
}

/// One or two of the newest jobs, whatever has become of them.
std::vector<Dependency> World::ChooseAfter() {
  std::vector<Dependency> out;
  const auto& known = daemon.stored();
  const uint64_t most = dice.Chance(0.3) ? 2 : 1;
  for (uint64_t i = 0; i < most && !known.empty(); ++i) {
    const auto back = static_cast<std::ptrdiff_t>(1 + dice.Below(std::min<uint64_t>(known.size(), 6)));
    const JobRecord& job = std::prev(known.end(), back)->second;
    const auto when = static_cast<AfterEnd>(1 + dice.Below(3));
    Say("user: it is to come after job {} ({})", job.id, static_cast<int>(when));
    out.push_back({.job = job.id, .name = job.name, .when = when});
  }
  return out;
}

void World::SubmitSweep(const JobTruth& sweep) {
  const auto& wanted = sweep.submission;
  Say("user: sweeps {}: {} jobs, {} at once{}", wanted.name, sweep.members, sweep.max_running,
      sweep.halving ? ", halving" : "");
  SweepSubmission all{
      .name = wanted.name, .owner = wanted.owner, .max_running = sweep.max_running, .halving = sweep.halving};
  for (uint32_t i = 1; i <= sweep.members; ++i) {
    JobTruth member = sweep;
    member.sweep = wanted.name;
    member.submission.name = fmt::format("{}[{}]", wanted.name, i);
    member.quality = static_cast<double>(dice.Below(1'000'000)) / 1e6;
    all.members.push_back(member.submission);
    truths[member.submission.name] = std::move(member);
  }
  daemon.SubmitSweep(all);
}

void World::Submit(JobTruth job) {
  auto& wanted = job.submission;
  if (job.comes_after) wanted.after = ChooseAfter();
  if (job.not_before > Duration::zero()) {
    const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(job.not_before);
    wanted.not_before = {time.now().wall.micros + wait.count()};
  }
  if (job.members > 0) return SubmitSweep(job);
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

/// It waits for what can't come: nodes that are gone for ever, or a job that waits for them itself.
bool World::Excused(const JobRecord& job, const std::vector<Space>& space) const {
  if (job.state != JobState::kQueued) return false;
  std::vector<Space> within = space;
  std::erase_if(within,
                [most = MostOfAWholeNode(*this, job)](const Space& node) { return node.devices > most; });
  if (!Fits(*this, job, within) || MayNeverHave(*this, job)) return true;
  const auto waits = [&](JobId id) {
    const JobRecord* other = daemon.Stored(id);
    return other != nullptr && !IsFinal(other->state) && other->id != job.id && Excused(*other, space);
  };
  for (const auto& dependency : ledger.after.at(job.id)) {
    if (waits(dependency.job)) return true;
  }
  const Ledger::Sweep* sweep = ledger.SweepOf(job.id, truths.at(job.name).sweep);
  if (sweep == nullptr || sweep->max_running == 0 || job.reason.code != ReasonCode::kSweepFull) return false;
  // Those who have the places of its sweep.
  uint32_t places = 0;
  for (uint32_t i = 0; i < sweep->members; ++i) {
    const JobRecord* other = daemon.Stored(JobId(sweep->first.value() + i));
    if (other == nullptr || IsFinal(other->state) || other->reason.code == ReasonCode::kSweepFull) continue;
    if (Excused(*other, space)) ++places;
  }
  return places >= sweep->max_running;
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
    if (!Excused(job, space)) return false;
  }
  return daemon.up();
}

/// The queue drains when the cluster is quiet, and agents forget the runs that have ended.
void World::CheckDrained(Instant deadline) {
  TidyUp(*this);
  if (Drained()) {
    CheckAtTheEnd(*this);
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
