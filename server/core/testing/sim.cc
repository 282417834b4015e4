#include "server/core/testing/sim.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::seconds;

std::string RunText(RunKey run) { return fmt::format("{}/{}", run.job, run.generation); }

NodeId NodeOf(const Action& action) {
  return std::visit(
      [](const auto& known) {
        if constexpr (requires { known.node; }) return known.node;
        return NodeId();
      },
      action);
}

}  // namespace

Sim::Sim(uint64_t seed) : random_(seed), reactor_(settings_, "cafe0123") {
  reactor_.Restore({}, {}, JobId(1), now_);
  const auto count = 2 + Random(4);
  for (uint64_t i = 0; i < count; ++i) {
    agents_.push_back({.name = fmt::format("n{}", i), .devices = static_cast<uint32_t>(1 + Random(4))});
  }
}

template <typename Event>
void Sim::Daemon(Event event) {
  Actions actions;
  event(actions);
  reactor_.Schedule(now_, actions);
  if (!healed_ && Chance(2)) {
    reactor_.Rollback();
    for (auto& agent : agents_) DropStream(agent);
    return;
  }
  reactor_.Commit();
  Dispatch(actions);
}

void Sim::Dispatch(const Actions& actions) {
  for (const auto& action : actions) {
    const NodeId node = NodeOf(action);
    for (auto& agent : agents_) {
      if (agent.name != node.name() || agent.session == 0) continue;
      if (std::holds_alternative<Disconnect>(action)) {
        DropStream(agent);
      } else {
        agent.inbox.push_back(action);
      }
    }
  }
}

void Sim::DropStream(Agent& agent) {
  agent.session = 0;
  agent.inbox.clear();
  agent.outbox.clear();
}

void Sim::Connect(Agent& agent) {
  NodeHello hello{.node = NodeId(agent.name),
                  .agent_id = "id-" + agent.name,
                  .address = agent.name,
                  .filesystem_id = "fs"};
  for (uint32_t i = 0; i < agent.devices; ++i) hello.devices.push_back({.index = i});
  for (const auto& [key, run] : agent.runs)
    hello.runs.push_back({.run = key, .phase = run.phase, .exits = run.exits});
  DropStream(agent);
  const uint64_t session = next_session_++;
  agent.session = session;
  Daemon([&](Actions& out) {
    if (!reactor_.OnAgentHello(hello, session, now_, out)) Fault("a reconnect was refused");
  });
}

void Sim::Submit() {
  const Submission submission{.name = "job",
                              .owner = "sim",
                              .priority = static_cast<int>(Random(3)),
                              .nodes = static_cast<uint32_t>(1 + Random(3)),
                              .ranks_per_node = static_cast<uint32_t>(1 + Random(3)),
                              .max_restarts = static_cast<uint32_t>(Random(4)),
                              .checkpoint_parent = "/ckpt"};
  Daemon([&](Actions& out) { reactor_.OnSubmit(submission, now_, out); });
}

void Sim::CancelOne() {
  if (reactor_.next_job() == JobId(1)) return;
  const JobId job(1 + Random(reactor_.next_job().value() - 1));
  const bool checkpoint = Chance(30);
  // Cancelling what has ended is refused, which is no fault.
  Daemon([&](Actions& out) { (void)reactor_.OnCancel(job, checkpoint, "sim", now_, out); });
}

void Sim::Pass(Duration time) {
  const Instant end = now_.steady + time;
  while (now_.steady < end) {
    now_.steady += seconds(1);
    now_.wall.micros += 1'000'000;
    Daemon([&](Actions& out) {
      for (const auto& agent : agents_) {
        if (agent.session != 0) reactor_.OnHeartbeat(NodeId(agent.name), now_);
      }
      reactor_.OnTick(now_, out);
    });
  }
}

void Sim::RestartDaemon() {
  reactor_ = RestartedFrom(reactor_, settings_, now_);
  for (auto& agent : agents_) DropStream(agent);
  Daemon([](Actions&) {});
}

void Sim::Reboot(Agent& agent) {
  const uint64_t session = agent.session;
  agent.runs.clear();
  DropStream(agent);
  Daemon([&](Actions&) { reactor_.OnAgentGone(NodeId(agent.name), session); });
}

void Sim::RestartAgent(Agent& agent) {
  const uint64_t session = agent.session;
  DropStream(agent);
  // Ranks live on with their shim; a port that was only held is gone.
  std::erase_if(agent.runs, [](const auto& item) { return item.second.phase == RunPhase::kPrepared; });
  Daemon([&](Actions&) { reactor_.OnAgentGone(NodeId(agent.name), session); });
}

void Sim::DeliverCommand(Agent& agent) {
  if (agent.inbox.empty()) return;
  const Action action = std::move(agent.inbox.front());
  agent.inbox.pop_front();
  std::visit([&](const auto& command) { Obey(agent, command); }, action);
}

void Sim::Obey(Agent& agent, const SendPrepare& command) {
  if (command.run.generation < agent.newest[command.run.job]) return;
  agent.newest[command.run.job] = command.run.generation;
  agent.runs.try_emplace(command.run);
  if (agent.runs.at(command.run).phase != RunPhase::kPrepared) return;
  const bool fails = !healed_ && Chance(5);
  const uint64_t session = agent.session;
  Daemon([&](Actions& out) {
    const NodeRecord* node = reactor_.state().FindNode(NodeId(agent.name));
    if (node == nullptr || node->session != session) return;
    reactor_.OnRunPrepared(NodeId(agent.name), command.run, agent.name, fails ? 0 : 29500,
                           fails ? "no port" : "", now_, out);
  });
}

void Sim::Obey(Agent& agent, const SendStart& command) {
  if (command.run.generation < agent.newest[command.run.job]) return;
  agent.newest[command.run.job] = command.run.generation;
  LiveRun& run = agent.runs[command.run];
  if (run.phase != RunPhase::kPrepared) return;  // a duplicate
  for (const auto& [key, other] : agent.runs) {
    const bool lives =
        std::any_of(other.alive.begin(), other.alive.end(), [](const auto& rank) { return rank.second; });
    for (const uint32_t device : command.devices) {
      if (lives && std::find(other.devices.begin(), other.devices.end(), device) != other.devices.end()) {
        Fault(fmt::format("{} starts on device {} of {} while {} uses it", RunText(command.run), device,
                          agent.name, RunText(key)));
      }
    }
  }
  run.phase = RunPhase::kRunning;
  run.first_rank = command.first_rank;
  run.devices = command.devices;
  for (uint32_t i = 0; i < command.devices.size(); ++i) {
    run.alive[command.first_rank + i] = true;
    run.events.push_back(fmt::format("started {}", command.first_rank + i));
  }
  agent.outbox.push_back(command.run);
}

void Sim::Obey(Agent& agent, const SendStop& command) {
  LiveRun& run = agent.runs[command.run];  // one it does not know is gone, and said to be
  const bool lives =
      std::any_of(run.alive.begin(), run.alive.end(), [](const auto& item) { return item.second; });
  run.phase = lives ? RunPhase::kStopping : RunPhase::kGone;
  run.stopped_exit = command.checkpoint_first ? 11 : 143;
  agent.newest[command.run.job] = std::max(agent.newest[command.run.job], command.run.generation);
  agent.outbox.push_back(command.run);
}

void Sim::Obey(Agent& agent, const SendForget& command) {
  const auto run = agent.runs.find(command.run);
  if (run != agent.runs.end() && run->second.phase == RunPhase::kGone) agent.runs.erase(run);
}

void Sim::DeliverReport(Agent& agent) {
  if (agent.outbox.empty()) return;
  const RunKey key = agent.outbox.front();
  agent.outbox.pop_front();
  const auto run = agent.runs.find(key);
  if (run == agent.runs.end()) return;
  const RunReport report{.run = key, .phase = run->second.phase, .exits = run->second.exits};
  const uint64_t session = agent.session;
  Daemon([&](Actions& out) {
    const NodeRecord* node = reactor_.state().FindNode(NodeId(agent.name));
    if (node != nullptr && node->session == session)
      reactor_.OnRunStatus(NodeId(agent.name), report, now_, out);
  });
}

void Sim::DeliverEvent(Agent& agent) {
  if (agent.session == 0) return;
  for (auto& [key, run] : agent.runs) {
    if (run.events.empty()) continue;
    const std::string event = run.events.front();
    const RunKey of = key;
    const uint32_t first_rank = run.alive.empty() ? 0 : run.alive.begin()->first;
    run.events.pop_front();
    Daemon([&](Actions& out) {
      const bool started = event.starts_with("started ");
      const auto rank = started ? static_cast<uint32_t>(std::stoul(event.substr(8))) : first_rank;
      if (!reactor_.AcceptsReportsOf(NodeId(agent.name), of, rank)) return;
      if (event.starts_with("started ")) {
        reactor_.OnTrainerStarted(of, static_cast<uint32_t>(std::stoul(event.substr(8))), now_, out);
      } else if (event == "finished") {
        reactor_.OnTrainerFinished(of, 0, now_, out);
      } else {
        const Checkpoint checkpoint{.path = RunText(of) + event, .step = 1, .generation = of.generation};
        reactor_.OnTrainerCheckpoint(of, checkpoint, now_, out);
      }
    });
    // A batch that was not stored was not acknowledged: the stream was dropped, and the report comes again.
    if (agent.session == 0 && agent.runs.contains(of)) agent.runs[of].events.push_front(event);
    return;
  }
}

void Sim::EndRank(Agent& agent, RunKey key, uint32_t rank, int exit_code, int signal) {
  LiveRun& run = agent.runs.at(key);
  run.alive[rank] = false;
  run.exits.push_back({.rank = rank, .exit_code = exit_code, .signal = signal});
  const bool any =
      std::any_of(run.alive.begin(), run.alive.end(), [](const auto& item) { return item.second; });
  if (!any) run.phase = RunPhase::kGone;
  if (agent.session != 0) agent.outbox.push_back(key);
}

void Sim::RankDoes(Agent& agent) {
  for (auto& [key, run] : agent.runs) {
    for (auto& [rank, alive] : run.alive) {
      if (!alive || !Chance(60)) continue;
      if (run.phase == RunPhase::kStopping) {
        EndRank(agent, key, rank, run.stopped_exit, 0);
        return;
      }
      const auto what = healed_ ? 50 : Random(100);
      if (what < 10) {
        EndRank(agent, key, rank, 0, 9);
      } else if (what < 15) {
        EndRank(agent, key, rank, 10, 0);
      } else if (what < 17) {
        EndRank(agent, key, rank, 2, 0);
      } else if (what < 35) {
        run.events.push_back(fmt::format("wrote {}", Random(1000)));
      } else if (what < 70) {
        if (rank == 0) run.events.push_back("finished");
        EndRank(agent, key, rank, 0, 0);
      }
      return;
    }
  }
}

void Sim::BeatPulse(Agent& agent) {
  if (agent.session == 0) return;
  for (const auto& [key, run] : agent.runs) {
    std::vector<RankPulse> pulses;
    for (const auto& [rank, alive] : run.alive) {
      if (!alive) continue;
      pulses.push_back({.rank = rank,
                        .collectives = Random(3),
                        .what = "step",
                        .silent = seconds(Chance(10) ? 20 : 0),
                        .still = seconds(Random(20)),
                        .silence_limit = seconds(15),
                        .limit = seconds(15)});
    }
    Daemon([&, run_key = key](Actions& out) {
      reactor_.OnRunPulse(NodeId(agent.name), run_key, std::move(pulses), now_, out);
    });
    return;  // the daemon may have dropped the stream, and the agent its runs
  }
}

void Sim::Step() {
  Agent& agent = AnyAgent();
  const auto what = Random(100);
  if (what < 25) {
    DeliverCommand(agent);
  } else if (what < 40) {
    DeliverReport(agent);
  } else if (what < 55) {
    DeliverEvent(agent);
  } else if (what < 66) {
    RankDoes(agent);
  } else if (what < 70) {
    BeatPulse(agent);
  } else if (what < 80) {
    if (agent.session == 0) Connect(agent);
  } else if (what < 85) {
    Pass(seconds(1 + Random(4)));
  } else if (what < 91) {
    Submit();
  } else if (what < 93) {
    CancelOne();
  } else if (what < 95) {
    RestartAgent(agent);
  } else if (what < 96) {
    Reboot(agent);
  } else if (what < 98) {
    DropStream(agent);  // the daemon does not know yet
  } else if (what < 99) {
    RestartDaemon();
  } else {
    Pass(seconds(50));
  }
  Check();
}

bool Sim::Heal() {
  healed_ = true;
  for (int round = 0; round < 3000 && faults_.empty(); ++round) {
    bool open = false;
    for (const JobId id : reactor_.state().active()) open = open || id != JobId();
    for (const auto& job : reactor_.state().queue()) open = open || job.code != ReasonCode::kNeverFits;
    if (!open) return true;
    for (auto& agent : agents_) {
      if (agent.session == 0) Connect(agent);
      DeliverCommand(agent);
      DeliverReport(agent);
      DeliverEvent(agent);
      RankDoes(agent);
    }
    Pass(seconds(1));
    Check();
  }
  return false;
}

void Sim::Check() {
  std::map<std::pair<std::string, uint32_t>, JobId> held;
  for (const JobId id : reactor_.state().active()) {
    for (const auto& part : reactor_.state().FindJob(id)->run.parts) {
      for (const uint32_t device : part.devices) {
        const auto [place, is_new] = held.emplace(std::pair(part.node.name(), device), id);
        if (!is_new) {
          Fault(
              fmt::format("jobs {} and {} both hold device {} of {}", place->second, id, device, part.node));
        }
      }
    }
  }
  for (JobId id(1); id < reactor_.next_job(); id = JobId(id.value() + 1)) {
    if (const JobRecord* job = reactor_.state().FindJob(id)) CheckJob(*job);
  }
}

void Sim::CheckJob(const JobRecord& job) {
  if (job.state != JobState::kRunning && (job.reason.code == ReasonCode::kNone || job.reason.text.empty())) {
    Fault(fmt::format("job {} is {} and has no reason", job.id, NameOf(job.state)));
  }
  if (HoldsDevices(job.state)) {
    std::set<NodeId> nodes;
    for (const auto& part : job.run.parts) {
      nodes.insert(part.node);
      const std::set<uint32_t> devices(part.devices.begin(), part.devices.end());
      if (devices.size() != job.ranks_per_node) Fault(fmt::format("job {} has a part of a gang", job.id));
    }
    if (nodes.size() != job.nodes)
      Fault(fmt::format("job {} has {} of {} nodes", job.id, nodes.size(), job.nodes));
  }
  for (const auto& checkpoint : job.checkpoints) {
    if (checkpoint.generation > job.generation)
      Fault(fmt::format("job {} took a checkpoint of the future", job.id));
  }
  const auto [known, is_new] = seen_.emplace(job.id, Seen{job.state, job.generation});
  if (is_new) return;
  Seen& seen = known->second;
  if (IsFinal(seen.state) && job.state != seen.state) Fault(fmt::format("job {} rose from the dead", job.id));
  if (job.generation < seen.generation) Fault(fmt::format("job {} went back a generation", job.id));
  seen = {job.state, job.generation};
}

std::string Sim::Summary() const {
  std::string out;
  for (JobId id(1); id < reactor_.next_job(); id = JobId(id.value() + 1)) {
    if (const JobRecord* job = reactor_.state().FindJob(id); job != nullptr && !IsFinal(job->state)) {
      out += fmt::format("job {} {} gen {}: {}\n", id, NameOf(job->state), job->generation, job->reason.text);
      for (const auto& part : job->run.parts) {
        out +=
            fmt::format("  {} phase {} lost {} contacted {} sent {}\n", part.node,
                        static_cast<int>(part.phase), part.lost, part.contacted, static_cast<int>(part.sent));
      }
    }
  }
  return out;
}

}  // namespace imgd
