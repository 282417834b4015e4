#include "tests/sim/agent.h"

#include <algorithm>

#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr RunKey kForeignRun{JobId(7), Generation(1)};
constexpr const char* kForeignCluster = "beef4567";

}  // namespace

Agent::Agent(World& world, std::string name, std::string agent_id, NodeTruth truth)
    : world_(&world), id_(std::move(name)), agent_id_(std::move(agent_id)), truth_(std::move(truth)) {
  for (uint32_t i = 0; i < truth_.devices; ++i)
    devices_.push_back({.index = i, .model = truth_.model, .memory_bytes = truth_.memory_bytes});
}

bool Agent::LiveRun::AnyAlive() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.second.alive; });
}

NodeHello Agent::MakeHello() const {
  NodeHello hello{.node = id_,
                  .agent_id = agent_id_,
                  .incarnation = fmt::format("{}", life_),
                  .address = id_.name(),
                  .filesystem_id = truth_.storage,
                  .devices = devices_,
                  .labels = truth_.labels,
                  .price_per_hour = truth_.price_per_hour};
  for (const auto& [key, run] : runs_) hello.runs.push_back(ReportOf(key, run));
  if (foreign_) {
    hello.runs.push_back({.cluster = kForeignCluster,
                          .run = kForeignRun,
                          .phase = RunPhase::kRunning,
                          .devices = {*foreign_}});
  }
  hello.health = HealthNow();
  return hello;
}

Health Agent::HealthNow() const {
  Health health;
  if (disk_full_) health.problems[ProblemKind::kDisk] = "has no space left";
  health.notice = notice_;
  return health;
}

void Agent::SendHealth() {
  if (session_ == 0 || !welcome_ || !running_) return;
  world_->network.ToDaemon(session_, [this, session = session_, health = HealthNow()] {
    world_->daemon.OnMessage(id_, session, [this, health](Actions& out) {
      world_->ledger.ill[id_] = !health.problems.empty();
      world_->ledger.Noticed(id_, health.notice);
      world_->daemon.reactor().OnHealth(id_, health, world_->time.now(), out);
    });
  });
}

bool Agent::sick() const { return world_->time.now().steady < sick_until_; }

void Agent::FallSick(Duration time) {
  world_->Say("{}: falls sick for {} s: every rank crashes there", id_,
              std::chrono::duration_cast<seconds>(time).count());
  sick_until_ = world_->time.now().steady + time;
}

void Agent::FillDisk(Duration time) {
  if (disk_full_) return;
  world_->Say("{}: its disk is full", id_);
  disk_full_ = true;
  SendHealth();
  world_->time.After(time, [this] {
    disk_full_ = false;
    SendHealth();
  });
}

void Agent::TakeBack(Duration in, Duration away, bool stays) {
  if (!on_ || notice_) return;
  world_->Say("{}: is to be taken back in {} s", id_, std::chrono::duration_cast<seconds>(in).count());
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(in).count();
  notice_ = Notice{{world_->time.now().wall.micros + microseconds}, "terminate"};
  SendHealth();
  world_->time.After(in, [this, away, stays, notice = *notice_] {
    if (notice_ != notice) return;
    notice_.reset();
    if (stays) return SendHealth();
    Reboot(away, true);
  });
}

RunReport Agent::ReportOf(RunKey key, const LiveRun& run) const {
  return {.run = key, .phase = run.phase, .exits = run.exits, .start_error = run.start_error};
}

void Agent::Connect() {
  if (!on_ || !running_ || session_ != 0) return;
  if (!world_->daemon.up() || cut_off_until_ > world_->time.now().steady) {
    ComeBack(world_->dice.Between(seconds(1), seconds(5)));
    return;
  }
  session_ = world_->network.Open(*this);
  welcome_ = false;
  world_->Say("{}: says hello, session {}, {} runs", id_, session_, runs_.size());
  world_->network.ToDaemon(
      session_, [this, session = session_, hello = MakeHello()] { world_->daemon.OnHello(session, hello); });
}

void Agent::ComeBack(Duration after) {
  world_->time.After(after, [this, life = life_] {
    if (life == life_) Connect();
  });
}

void Agent::OnStreamLost(uint64_t session) {
  if (session != session_) return;
  session_ = 0;
  ComeBack(world_->dice.Between(milliseconds(500), seconds(4)));
}

void Agent::OnWelcome(const Daemon::Positions& stored) {
  welcome_ = true;
  // With each heartbeat, so that what was lost on its way comes later.
  SendHealth();
  for (auto& [key, run] : runs_) {
    for (auto& [rank, life] : run.ranks) {
      const auto position = stored.find({key, rank});
      life.sent = life.acknowledged;
      if (position != stored.end()) OnAcknowledged(key, rank, position->second);
      life.sent = life.acknowledged;
      SendEvents(key, rank);
    }
  }
  for (auto run = runs_.begin(); run != runs_.end();) DropForgotten((run++)->first);
}

void Agent::OnAcknowledged(RunKey run, uint32_t rank, uint64_t number) {
  const auto found = runs_.find(run);
  if (found == runs_.end() || !found->second.ranks.contains(rank)) return;
  RankLife& life = found->second.ranks.at(rank);
  for (; life.acknowledged < number && !life.events.empty(); ++life.acknowledged) life.events.pop_front();
  if (welcome_ && life.events.empty() && found->second.forgotten) {
    world_->time.After(Duration::zero(), [this, run] { DropForgotten(run); });
  }
}

void Agent::Report(RunKey run, uint32_t rank, TrainerEvent event) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  found->second.ranks[rank].events.push_back(std::move(event));
  // They go another way than exits, and may come after them.
  world_->time.After(world_->dice.Between(milliseconds(0), milliseconds(1500)),
                     [this, run, rank] { SendEvents(run, rank); });
}

void Agent::SendEvents(RunKey run, uint32_t rank) {
  const auto found = runs_.find(run);
  if (session_ == 0 || !welcome_ || !running_ || found == runs_.end()) return;
  RankLife& life = found->second.ranks[rank];
  while (life.sent < life.acknowledged + life.events.size()) {
    const TrainerEvent& event = life.events[life.sent - life.acknowledged];
    SendEvent(run, rank, ++life.sent, event);
  }
}

void Agent::SendEvent(RunKey run, uint32_t rank, uint64_t number, const TrainerEvent& event) {
  world_->network.ToDaemon(session_, [this, session = session_, run, rank, number, event] {
    world_->Say("{}: event {} of rank {} of {}: {}", id_, number, rank, InWords(run), InWords(event));
    world_->daemon.OnEvent(id_, session, run, rank, number, [this, run, rank, event](Actions& out) {
      Reactor& reactor = world_->daemon.reactor();
      const Now now = world_->time.now();
      switch (event.kind) {
        case TrainerEvent::Kind::kStarted:
          return reactor.OnTrainerStarted(run, rank, now, out);
        case TrainerEvent::Kind::kProgress:
          return reactor.OnTrainerProgress(run, event.left, now);
        case TrainerEvent::Kind::kEpoch:
          return reactor.OnTrainerEpoch(run, event.figures, now, out);
        case TrainerEvent::Kind::kCheckpoint:
          return reactor.OnTrainerCheckpoint(run, event.checkpoint, now, out);
        case TrainerEvent::Kind::kFinished:
          return reactor.OnTrainerFinished(run, rank, now, out);
        case TrainerEvent::Kind::kFailed:
          return reactor.OnTrainerFailed(run, event.failure, now, out);
      }
    });
  });
}

void Agent::SendStatus(RunKey run) {
  const auto found = runs_.find(run);
  if (session_ == 0 || !running_ || found == runs_.end()) return;
  world_->network.ToDaemon(session_, [this, session = session_, report = ReportOf(run, found->second)] {
    world_->Say("{}: {} {}, {} ended", id_, InWords(report.run), InWords(report.phase), report.exits.size());
    world_->daemon.OnMessage(id_, session, [this, report](Actions& out) {
      world_->daemon.reactor().OnRunStatus(id_, report, world_->time.now(), out);
    });
  });
}

void Agent::SendPulses(RunKey run, std::vector<RankPulse> pulses) {
  if (session_ == 0 || !running_) return;
  world_->network.ToDaemon(session_, [this, session = session_, run, pulses = std::move(pulses)] {
    world_->daemon.OnMessage(id_, session, [this, run, pulses](Actions&) {
      world_->daemon.reactor().OnRunPulse(id_, run, pulses, world_->time.now());
    });
  });
}

void Agent::Obey(const Action& action) {
  if (!on_ || !running_) return;
  std::visit([this](const auto& command) { Handle(command); }, action);
}

bool Agent::IsOld(RunKey run) {
  Generation& newest = newest_[run.job];
  if (run.generation < newest) return true;
  newest = run.generation;
  return false;
}

void Agent::Handle(const SendPrepare& command) {
  if (IsOld(command.run)) return;
  LiveRun& run = runs_[command.run];
  if (run.phase != RunPhase::kPrepared) return;
  if (!world_->quiet() && world_->dice.Chance(0.01)) return;  // it never answers
  const bool fails = !world_->quiet() && world_->dice.Chance(0.02);
  if (run.port == 0) run.port = next_port_++;
  const uint32_t port = fails ? 0 : run.port;
  world_->network.ToDaemon(session_, [this, session = session_, key = command.run, port] {
    world_->daemon.OnMessage(id_, session, [this, key, port](Actions& out) {
      world_->daemon.reactor().OnRunPrepared(id_, key, id_.name(), port, port == 0 ? "no port" : "",
                                             world_->time.now(), out);
    });
  });
}

/// A device has one gang at a time. Checked where it matters, on the node.
void Agent::CheckDevices(const SendStart& command) const {
  for (const uint32_t device : command.devices) {
    for (const auto& [key, other] : runs_) {
      if (!other.AnyAlive() || std::count(other.devices.begin(), other.devices.end(), device) == 0) continue;
      world_->Break("one gang a device", fmt::format("{} starts on device {} of {} while ranks of {} use it",
                                                     InWords(command.run), device, id_, InWords(key)));
    }
  }
}

void Agent::Handle(const SendStart& command) {
  if (IsOld(command.run)) return;
  LiveRun& run = runs_[command.run];
  if (run.phase != RunPhase::kPrepared) return;  // a duplicate
  CheckDevices(command);
  if (command.node_rank == 0 && command.node_count > 1 && !world_->quiet() && world_->dice.Chance(0.01)) {
    world_->Say("{}: reboots when it is told to start ranks; the port that it held is gone", id_);
    return Reboot(world_->dice.Between(seconds(5), seconds(40)), false);
  }
  const bool held = foreign_ && std::count(command.devices.begin(), command.devices.end(), *foreign_) > 0;
  if (held || (!world_->quiet() && world_->dice.Chance(0.01))) {
    run.phase = RunPhase::kGone;
    run.start_error = held ? "another cluster's run holds the device" : "no such program";
    SendStatus(command.run);
    return;
  }
  if (command.node_rank == 0 && run.port != command.master_port) {
    world_->Break("a gang agrees", fmt::format("{} is to meet at port {} of {}, which nobody holds",
                                               InWords(command.run), command.master_port, id_));
  }
  run.phase = RunPhase::kRunning;
  run.kind = command.kind;
  run.devices = command.devices;
  for (uint32_t i = 0; i < command.ranks; ++i) {
    run.ranks[command.first_rank + i] = {.alive = true, .stubborn = world_->dice.Chance(0.1)};
  }
  SendStatus(command.run);
  world_->gangs.Join(*this, command);
}

void Agent::Handle(const SendStop& command) {
  IsOld(command.run);
  LiveRun& run = runs_[command.run];  // one that it does not know is gone, and said to be
  run.phase = run.AnyAlive() ? RunPhase::kStopping : RunPhase::kGone;
  SendStatus(command.run);
  if (run.phase == RunPhase::kGone) return;
  const Duration grace = milliseconds(command.grace_ms);
  if (command.checkpoint_first && run.kind != imgd::JobKind::kTraining) {
    world_->Break("a program is not asked for checkpoints",
                  fmt::format("{} is, on {}", InWords(command.run), id_));
  }
  if (command.checkpoint_first) {
    StopAfterCheckpoint(command.run, grace);
  } else {
    Terminate(command.run, grace);
  }
}

/// As the shim does it: a checkpoint within the grace time, else SIGTERM.
void Agent::StopAfterCheckpoint(RunKey key, Duration grace) {
  world_->time.After(world_->dice.Between(seconds(1), seconds(6)), [this, key] {
    const auto run = runs_.find(key);
    if (run == runs_.end() || !world_->gangs.WriteCheckpoint(key)) return;
    for (auto& [rank, life] : run->second.ranks) {
      if (life.alive && !life.stubborn) EndRank(key, rank, 11, 0, true);
    }
  });
  world_->time.After(grace, [this, key, grace] { Terminate(key, grace); });
}

void Agent::Terminate(RunKey key, Duration grace) {
  const auto run = runs_.find(key);
  if (run == runs_.end()) return;
  for (auto& [rank, life] : run->second.ranks) {
    if (!life.alive) continue;
    const Duration after = life.stubborn ? grace : world_->dice.Between(milliseconds(1), seconds(2));
    world_->time.After(after, [this, key, rank_ = rank, kill = life.stubborn] {
      const auto known = runs_.find(key);
      const bool program = known != runs_.end() && known->second.kind != imgd::JobKind::kTraining;
      EndRank(key, rank_, kill ? 0 : program ? world_->gangs.PutAside(key) : 143, kill ? 9 : 0, true);
    });
  }
}

void Agent::Handle(const SendForget& command) {
  const auto run = runs_.find(command.run);
  if (run == runs_.end() || run->second.phase != RunPhase::kGone) return;
  // It goes when its log has been sent too, which may take a while.
  const Duration log =
      world_->dice.Chance(0.2) ? world_->dice.Between(seconds(1), seconds(40)) : Duration::zero();
  world_->time.After(log, [this, key = command.run] {
    const auto known = runs_.find(key);
    if (known == runs_.end()) return;
    known->second.forgotten = true;
    DropForgotten(key);
  });
}

void Agent::DropForgotten(RunKey key) {
  const auto run = runs_.find(key);
  if (run == runs_.end() || !run->second.forgotten) return;
  const bool waits = std::any_of(run->second.ranks.begin(), run->second.ranks.end(),
                                 [](const auto& rank) { return !rank.second.events.empty(); });
  if (!waits) runs_.erase(run);
}

bool Agent::Lives(RunKey run, uint32_t rank) const {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return false;
  const auto life = found->second.ranks.find(rank);
  return life != found->second.ranks.end() && life->second.alive;
}

bool Agent::Stopping(RunKey run) const {
  const auto found = runs_.find(run);
  return found != runs_.end() && found->second.phase == RunPhase::kStopping;
}

void Agent::EndRank(RunKey key, uint32_t rank, int exit_code, int signal, bool told) {
  if (!Lives(key, rank)) return;
  LiveRun& run = runs_.at(key);
  world_->Say("{}: rank {} of {} ends with exit code {}, signal {}", id_, rank, InWords(key), exit_code,
              signal);
  run.ranks.at(rank).alive = false;
  run.exits.push_back({.rank = rank, .exit_code = exit_code, .signal = signal, .told = told});
  if (!run.AnyAlive()) run.phase = RunPhase::kGone;
  SendStatus(key);
  world_->gangs.RankEnded(key, rank);
}

void Agent::RestartAgent(Duration away) {
  if (!on_ || !running_) return;
  world_->Say("{}: the agent ends, the ranks live on", id_);
  Leave();
  // A port that was only held is gone.
  std::erase_if(runs_, [](const auto& item) { return item.second.phase == RunPhase::kPrepared; });
  if (devices_.size() < 8 && world_->dice.Chance(0.2)) {
    devices_.insert(devices_.begin(), {.index = static_cast<uint32_t>(devices_.size()),
                                       .model = truth_.model,
                                       .uuid = "new",
                                       .memory_bytes = truth_.memory_bytes});
  }
  world_->time.After(away, [this, life = life_] {
    if (life != life_) return;
    running_ = true;
    Connect();
  });
}

void Agent::Leave() {
  running_ = false;
  ++life_;
  if (session_ != 0) world_->network.CloseByAgent(session_, true);
  session_ = 0;
}

void Agent::LoseRanks() {
  for (auto& [key, run] : runs_) {
    for (auto& [rank, life] : run.ranks) {
      if (!life.alive) continue;
      life.alive = false;
      world_->gangs.RankVanished(key, rank, id_.name());
    }
  }
}

void Agent::Reboot(Duration away, bool power_lost) {
  if (!on_) return;
  world_->Say("{}: the machine goes down{}", id_, power_lost ? " without a word" : "");
  LoseRanks();
  // The runs' folders may be in memory, or on disk.
  if (world_->dice.Chance(0.5)) {
    runs_.clear();
    newest_.clear();
  } else {
    std::erase_if(runs_, [](const auto& item) { return item.second.phase == RunPhase::kPrepared; });
    for (auto& [key, run] : runs_) run.phase = RunPhase::kGone;
  }
  foreign_.reset();
  on_ = running_ = false;
  ++life_;
  if (session_ != 0) world_->network.CloseByAgent(session_, !power_lost);
  session_ = 0;
  world_->time.After(away, [this, life = life_] {
    if (life != life_ || gone_for_ever_) return;
    on_ = running_ = true;
    Connect();
  });
}

void Agent::DieForEver() {
  Reboot(seconds(1), true);
  gone_for_ever_ = true;
}

void Agent::CutOff(Duration time) {
  world_->Say("{}: is cut off for {} s", id_, std::chrono::duration_cast<seconds>(time).count());
  cut_off_until_ = world_->time.now().steady + time;
  if (session_ != 0) world_->network.Stall(session_, time);
}

void Agent::Mend() {
  cut_off_until_ = sick_until_ = {};
  notice_.reset();
  SendHealth();
}

void Agent::RunForeign(Duration time) {
  if (!on_ || foreign_ || std::any_of(runs_.begin(), runs_.end(), [](const auto& run) {
        return run.second.phase != RunPhase::kGone;
      })) {
    return;
  }
  for (const JobId job : world_->daemon.reactor().state().active()) {
    for (const auto& part : world_->daemon.reactor().state().FindJob(job)->run.parts) {
      if (part.node == id_) return;
    }
  }
  if (session_ != 0) return;
  foreign_ = devices_.back().index;
  world_->Say("{}: another cluster's run holds device {}", id_, *foreign_);
  world_->time.After(time, [this, life = life_] {
    if (!foreign_ || !on_) return;
    const RunReport gone{.cluster = kForeignCluster, .run = kForeignRun, .phase = RunPhase::kGone};
    foreign_.reset();
    if (session_ == 0) return;
    world_->network.ToDaemon(session_, [this, session = session_, gone] {
      world_->daemon.OnMessage(id_, session, [this, gone](Actions& out) {
        world_->ledger.foreign.erase(id_);
        world_->daemon.reactor().OnRunStatus(id_, gone, world_->time.now(), out);
      });
    });
  });
}

}  // namespace imgd::sim
