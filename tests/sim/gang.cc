#include "tests/sim/gang.h"

#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr auto kSilenceLimit = seconds(20);
constexpr auto kLimit = seconds(30);

bool Trains(const SendStart& start) { return start.kind == imgd::JobKind::kTraining; }

}  // namespace

void Gangs::Join(Agent& agent, const SendStart& start) {
  Gang& gang = gangs_[start.run];
  if (gang.members.empty()) {
    gang.start = start;
  } else if (gang.start.world_size != start.world_size || gang.start.master_port != start.master_port ||
             gang.start.master_address != start.master_address || gang.start.node_count != start.node_count) {
    world_->Break("a gang agrees", fmt::format("nodes of {} were told different things", InWords(start.run)));
  }
  for (uint32_t i = 0; i < start.ranks; ++i) {
    if (!gang.members.emplace(start.first_rank + i, &agent).second) {
      world_->Break("a gang is whole",
                    fmt::format("rank {} of {} is started twice", start.first_rank + i, InWords(start.run)));
    }
  }
  if (gang.members.size() == start.world_size && !gang.begun) {
    gang.begun = true;
    world_->time.After(world_->dice.Between(seconds(1), seconds(12)),
                       [this, run = start.run] { Begin(run); });
  }
}

void Gangs::Begin(RunKey run) {
  Gang& gang = gangs_.at(run);
  const JobTruth& truth = world_->truths.at(gang.start.job_name);
  if (gang.broken) return;
  if (truth.bad_input) {
    gang.members.at(0)->Report(run, 0,
                               {.kind = TrainerEvent::Kind::kFailed,
                                .failure = {.rank = 0, .message = "no such data set", .bad_input = true}});
    gang.members.at(0)->EndRank(run, 0, 2, 0);
    return;
  }
  const auto sick = std::find_if(gang.members.begin(), gang.members.end(),
                                 [](const auto& member) { return member.second->sick(); });
  const bool fails = !world_->quiet() && world_->dice.Chance(truth.fails);
  if (Trains(gang.start)) {
    if (fails && world_->dice.Chance(0.05)) return;  // it never trains
    for (const auto& [rank, agent] : gang.members) agent->Report(run, rank, {});
  }
  gang.training = true;
  gang.since = world_->time.now().steady;
  if (!Trains(gang.start)) gang.done = progress_[gang.start.checkpoint_dir];
  if (!gang.start.resume_from.empty()) gang.done = progress_[gang.start.resume_from.front()];
  gang.saved = gang.done;
  gang.epoch = static_cast<uint32_t>(gang.done * kEpochs / truth.work);
  if (fails) {
    // Nobody could find out that a program hangs, or that it should not have ended with 0.
    gang.fault = Trains(gang.start) ? static_cast<Fault>(1 + world_->dice.Below(6))
                                    : static_cast<Fault>(1 + world_->dice.Below(3));
    const Duration left = std::max<Duration>(truth.work - gang.done, seconds(2));
    gang.fails_at = gang.since + world_->dice.Between(seconds(1), left);
  }
  if (sick != gang.members.end()) {
    gang.fault = Fault::kFails;
    gang.culprit = sick->first;
    gang.fails_at = gang.since + world_->dice.Between(seconds(1), seconds(15));
  } else if (truth.crashes_at > Duration::zero()) {
    gang.fault = Fault::kFails;
    gang.fails_at = gang.since + std::max<Duration>(truth.crashes_at - gang.done, seconds(0));
  }
  SayProgress(run, gang);
  Continue(run);
}

/// What is left, as well as ranks know it: speeds change.
void Gangs::SayProgress(RunKey run, const Gang& gang) {
  if (!Trains(gang.start)) return;
  const Duration left = world_->truths.at(gang.start.job_name).work - Done(gang);
  const auto percent = 60 + static_cast<int>(world_->dice.Below(90));
  gang.members.at(0)->Report(run, 0, {.kind = TrainerEvent::Kind::kProgress, .left = left * percent / 100});
}

Duration Gangs::Done(const Gang& gang) const { return gang.done + (world_->time.now().steady - gang.since); }

/// Only members of sweeps tell how good they are; nobody would listen to others.
void Gangs::TellEpoch(RunKey run, Gang& gang, const JobTruth& truth) {
  const auto done = static_cast<uint32_t>(Done(gang) * kEpochs / truth.work);
  if (truth.sweep.empty() || done <= gang.epoch) return;
  gang.epoch = done;
  gang.members.at(0)->Report(
      run, 0,
      {.kind = TrainerEvent::Kind::kEpoch, .figures = {.epoch = done, .top1 = ValidationOf(truth, done)}});
}

/// Waits for the next of: an epoch's end, a checkpoint, the end, the fault.
void Gangs::Continue(RunKey run) {
  const Gang& gang = gangs_.at(run);
  const JobTruth& truth = world_->truths.at(gang.start.job_name);
  const Instant now = world_->time.now().steady;
  const Duration epoch = truth.sweep.empty()
                             ? Duration::max()
                             : truth.work * (gang.epoch + 1) / kEpochs - Done(gang) + milliseconds(1);
  const Duration next =
      std::min({truth.work - Done(gang), gang.saved + truth.checkpoint_every - Done(gang), epoch,
                gang.fails_at == Instant::max() ? Duration::max() : gang.fails_at - now});
  world_->time.After(next, [this, run] { Reach(run); });
}

void Gangs::Reach(RunKey run) {
  Gang& gang = gangs_.at(run);
  if (!gang.training) return;
  const JobTruth& truth = world_->truths.at(gang.start.job_name);
  if (world_->time.now().steady >= gang.fails_at) {
    Fail(run, gang);
  } else if (Done(gang) >= truth.work) {
    Finish(run, gang);
  } else {
    TellEpoch(run, gang, truth);
    if (Done(gang) >= gang.saved + truth.checkpoint_every) {
      WriteCheckpoint(run);
      SayProgress(run, gang);
      if (Trains(gang.start)) BeatAll(run, gang);
    }
    Continue(run);
  }
}

bool Gangs::WriteCheckpoint(RunKey run) {
  Gang& gang = gangs_.at(run);
  if (!gang.training) return false;
  gang.saved = Done(gang);
  if (!Trains(gang.start)) {
    Keep(gang);
    return true;
  }
  const auto step = static_cast<uint64_t>(std::chrono::duration_cast<seconds>(gang.saved).count());
  const auto path = fmt::format("{}/g{}/step{}", gang.start.checkpoint_dir, run.generation, step);
  progress_[path] = gang.saved;
  gang.members.at(0)->Report(run, 0,
                             {.kind = TrainerEvent::Kind::kCheckpoint,
                              .checkpoint = {.path = path, .step = step, .generation = run.generation}});
  return true;
}

void Gangs::Keep(Gang& gang) { progress_[gang.start.checkpoint_dir] = Done(gang); }

int Gangs::PutAside(RunKey run) {
  Gang& gang = gangs_.at(run);
  const int codes[] = {0, 0, 1, 143};
  const int code = codes[world_->dice.Below(4)];
  if (code == 0 && gang.training) Keep(gang);
  return code;
}

void Gangs::Finish(RunKey run, Gang& gang) {
  if (!Trains(gang.start)) Keep(gang);
  gang.training = false;
  gang.finished = true;
  if (Trains(gang.start)) gang.members.at(0)->Report(run, 0, {.kind = TrainerEvent::Kind::kFinished});
  for (const auto& [rank, agent] : gang.members) {
    world_->time.After(world_->dice.Between(milliseconds(0), seconds(2)),
                       [run, rank_ = rank, agent_ = agent] { agent_->EndRank(run, rank_, 0, 0); });
  }
}

void Gangs::End(RunKey run, Gang& gang, uint32_t rank, int exit_code, int signal, bool reports) {
  Agent& agent = *gang.members.at(rank);
  if (!agent.Lives(run, rank)) return;
  if (!Trains(gang.start)) {
    // What exit codes mean is a program's own business.
    const int codes[] = {1, 1, 2, 10, 11};
    agent.EndRank(run, rank, signal != 0 || exit_code == 0 ? exit_code : codes[world_->dice.Below(5)],
                  signal);
    return;
  }
  if (reports && exit_code == 1) {
    // Without limits, so that nobody takes it for a gang that stands still.
    agent.SendPulses(run,
                     {{.rank = rank,
                       .step = static_cast<uint64_t>(std::chrono::duration_cast<seconds>(Done(gang)).count()),
                       .collectives = 5,
                       .what = "step"}});
  }
  if (reports) {
    agent.Report(run, rank,
                 {.kind = TrainerEvent::Kind::kFailed,
                  .failure = {.rank = rank, .message = "it failed", .collective_broken = exit_code == 10}});
  }
  agent.EndRank(run, rank, exit_code, signal);
}

void Gangs::Fail(RunKey run, Gang& gang) {
  const auto rank = gang.culprit.value_or(static_cast<uint32_t>(world_->dice.Below(gang.members.size())));
  switch (gang.fault) {
    case Fault::kNone:
      return;
    case Fault::kKilled:
      return End(run, gang, rank, 0, 9, false);
    case Fault::kFails:
      return End(run, gang, rank, 1, 0, true);
    case Fault::kFailsSilently:
      return End(run, gang, rank, 1, 0, false);
    case Fault::kEndsEarly:
      for (const auto& [member, agent] : gang.members) {
        gang.broken = true;
        gang.training = false;
        End(run, gang, member, 0, 0, false);
      }
      return;
    case Fault::kCollective:
      return End(run, gang, rank, 10, 0, true);
    case Fault::kHangs:
      gang.silent = world_->dice.Chance(0.5);
      return Hang(run, gang, rank);
  }
}

void Gangs::RankEnded(RunKey run, uint32_t rank) {
  const auto gang = gangs_.find(run);
  if (gang == gangs_.end()) return;
  gang->second.ended.insert(rank);
  if (!gang->second.finished) BreakUp(run, gang->second);
}

void Gangs::RankVanished(RunKey run, uint32_t rank, const std::string& address) {
  const auto gang = gangs_.find(run);
  if (gang == gangs_.end()) return;
  gang->second.unanswered = address;
  RankEnded(run, rank);
}

void Gangs::CutOff(Agent& agent) {
  for (auto& [run, gang] : gangs_) {
    const bool split = std::any_of(gang.members.begin(), gang.members.end(),
                                   [&](const auto& member) { return member.second != &agent; });
    const auto here = std::find_if(gang.members.begin(), gang.members.end(),
                                   [&](const auto& member) { return member.second == &agent; });
    if (here == gang.members.end() || !split || gang.finished) continue;
    gang.unanswered = agent.id().name();
    BreakUp(run, gang);
  }
}

/// The collectives of those that are left fail, or never end.
void Gangs::BreakUp(RunKey run, Gang& gang) {
  gang.training = false;
  if (std::exchange(gang.broken, true)) return;
  bool waits = false;
  for (const auto& [rank, agent] : gang.members) {
    if (gang.ended.contains(rank)) continue;
    if (Trains(gang.start) && world_->dice.Chance(0.4)) {
      waits = true;
      continue;
    }
    world_->time.After(world_->dice.Between(milliseconds(200), seconds(20)), [this, run, rank_ = rank] {
      Gang& known = gangs_.at(run);
      if (!known.members.at(rank_)->Stopping(run)) End(run, known, rank_, 10, 0, world_->dice.Chance(0.8));
    });
  }
  if (waits) Hang(run, gang, gang.members.begin()->first);
}

void Gangs::Hang(RunKey run, Gang& gang, uint32_t last) {
  gang.training = false;
  gang.hung = true;
  gang.last = last;
  gang.hung_since = world_->time.now().steady;
  world_->Say("{} stands still; {} ranks are left", InWords(run), gang.members.size() - gang.ended.size());
  PulseAll(run);
}

bool Gangs::AnyAlive(RunKey run, const Gang& gang) const {
  return std::any_of(gang.members.begin(), gang.members.end(),
                     [&](const auto& member) { return member.second->Lives(run, member.first); });
}

/// Where the ranks of a gang that stands still are, each second.
void Gangs::PulseAll(RunKey run) {
  const Gang& gang = gangs_.at(run);
  if (!AnyAlive(run, gang)) return;
  const Duration still = world_->time.now().steady - gang.hung_since;
  std::map<Agent*, std::vector<RankPulse>> pulses;
  for (const auto& [rank, agent] : gang.members) {
    if (!agent->Lives(run, rank)) continue;
    const bool is_last = rank == gang.last;
    pulses[agent].push_back({.rank = rank,
                             .collectives = is_last ? 10U : 11U,
                             .what = "forward pass",
                             .silent = is_last && gang.silent ? still : Duration::zero(),
                             .still = still,
                             .silence_limit = kSilenceLimit,
                             .limit = kLimit,
                             .unanswered = agent->id().name() == gang.unanswered ? "" : gang.unanswered});
  }
  for (const auto& [rank, agent] : gang.members) {
    const auto of = pulses.find(agent);
    if (of == pulses.end()) continue;
    agent->SendPulses(run, std::move(of->second));
    pulses.erase(of);
  }
  world_->time.After(world_->shape.tick, [this, run] { PulseAll(run); });
}

/// A gang that goes on, between two steps.
void Gangs::BeatAll(RunKey run, Gang& gang) {
  if (gang.members.size() > 64) return;
  std::map<std::string, std::pair<Agent*, std::vector<RankPulse>>> pulses;
  for (const auto& [rank, agent] : gang.members) {
    auto& [of, list] = pulses[agent->id().name()];
    of = agent;
    list.push_back({.rank = rank,
                    .collectives = 5,
                    .what = "step",
                    .still = world_->dice.Between(seconds(0), seconds(15)),
                    .silence_limit = kSilenceLimit,
                    .limit = kLimit});
  }
  for (auto& [name, of] : pulses) of.first->SendPulses(run, std::move(of.second));
}

Generation Gangs::NewestThatRan(RunKey before) const {
  const auto after = gangs_.lower_bound(before);
  if (after == gangs_.begin()) return {};
  const auto newest = std::prev(after);
  return newest->first.job == before.job ? newest->first.generation : Generation();
}

bool Gangs::BrokenOn(const NodeId& node) const {
  return std::any_of(gangs_.begin(), gangs_.end(), [&](const auto& item) {
    const Gang& gang = item.second;
    return (gang.broken || gang.hung) && std::any_of(gang.members.begin(), gang.members.end(),
                                                     [&](const auto& m) { return m.second->id() == node; });
  });
}

bool Gangs::FellApart(RunKey run) const {
  const auto gang = gangs_.find(run);
  return gang != gangs_.end() && (gang->second.broken || gang->second.hung);
}

bool Gangs::EverHung(RunKey run) const {
  const auto gang = gangs_.find(run);
  return gang != gangs_.end() && gang->second.hung;
}

bool Gangs::Finished(RunKey run) const {
  const auto gang = gangs_.find(run);
  return gang != gangs_.end() && gang->second.finished;
}

}  // namespace imgd::sim
