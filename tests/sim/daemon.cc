#include "tests/sim/daemon.h"

#include <algorithm>

#include "tests/sim/invariants.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// Takes from it what is only in memory, and not in state.db. Of a copy that was assigned to, since what it
/// was has its room already: this is half of a life's copying.
void AsStored(JobRecord& job) {
  job.not_before = {};
  job.run.since = job.run.held_since = job.run.stop_since = job.run.gone_since = {};
  job.run.kept_since = job.run.charged_at = {};
  for (auto& part : job.run.parts) {
    part.sent = Command::kNothing;
    part.stop_by = {};
  }
}

void AsStored(NodeRecord& node) {
  node.session = 0;
  node.silence = {};
  node.stale.clear();
  node.foreign.clear();
  node.problems.clear();
  node.notice.reset();
  node.holders.clear();
}

}  // namespace

Daemon::Daemon(World& world) : world_(&world), reactor_(world.settings, "cafe0123") {
  reactor_.Restore({}, {}, JobId(1), world_->time.now());
  TickAfter(world_->shape.tick);
}

const JobRecord* Daemon::Stored(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

void Daemon::Call(std::function<void(Actions&)> call, Answer answer) {
  if (!up_) {
    if (answer) answer(false);
    return;
  }
  inputs_.push_back({std::move(call), std::move(answer)});
  Wake();
}

/// What comes within a short time is one batch.
void Daemon::Wake() {
  if (awake_) return;
  awake_ = true;
  const Duration sleep = asleep_until_ - world_->time.now().steady;
  world_->time.After(
      std::max<Duration>(sleep, Duration::zero()) + milliseconds(world_->dice.Below(world_->shape.batch_ms)),
      [this, life = life_] {
        if (life != life_) return;
        awake_ = false;
        if (!inputs_.empty()) Work(false);
      });
}

/// The process looks at the clock each `tick`, for as long as it lives.
void Daemon::TickAfter(Duration time) {
  world_->time.After(time, [this, life = life_] {
    if (life == life_) Tick();
  });
}

void Daemon::Tick() {
  const Duration sleep = asleep_until_ - world_->time.now().steady;
  if (sleep > Duration::zero()) {
    world_->time.After(sleep, [this, sleep, life = life_] {
      if (life != life_) return;
      // What passes between two looks counts for at most one heartbeat.
      world_->ledger.Slept(sleep - world_->settings.heartbeat, world_->time.now().steady);
      Tick();
    });
    return;
  }
  const uint64_t life = life_;
  Work(true);
  if (life == life_) TickAfter(world_->shape.tick);
}

/// Heartbeats: not messages of their own, to save time.
void Daemon::Beat() {
  const Now now = world_->time.now();
  auto& heard = world_->ledger.heard;
  auto at = heard.begin();
  for (const NodeRecord* const node : reactor_.state().all_nodes()) {
    const Agent* const agent = node->Connected() ? world_->network.Passing(node->session) : nullptr;
    if (agent == nullptr || agent->id() != node->id) continue;
    reactor_.OnHeard(node->id, now);
    ValueAt(heard, at, node->id) = now.steady;
  }
}

void Daemon::Work(bool tick) {
  const Now now = world_->time.now();
  const auto inputs = std::exchange(inputs_, {});
  Actions actions;
  std::vector<uint64_t> sessions;
  for (const auto& input : inputs) {
    input.call(actions);
    Address(actions, sessions);
  }
  if (tick) {
    if ((now.steady - beaten_) >= world_->settings.heartbeat - milliseconds(500)) {
      beaten_ = now.steady;
      Beat();
    }
    reactor_.OnTick(now, actions);
  }
  reactor_.Schedule(now, actions);
  Address(actions, sessions);
  const auto touched = reactor_.state().TouchedJobs();
  const bool nodes_touched = !reactor_.state().TouchedNodes().empty();
  const auto answer = [&inputs](bool stored) {
    for (const auto& input : inputs) {
      if (input.answer) input.answer(stored);
    }
  };
  if (CommitFails(!touched.empty() || nodes_touched)) {
    Undo();
    answer(false);
    return;
  }
  Store(actions);
  reactor_.Commit();
  if (world_->Tells()) {
    for (const auto& action : actions) world_->Say("imgd: {}", InWords(action));
  }
  Check(*world_, {.actions = actions, .touched = touched, .nodes_touched = nodes_touched});
  if (!world_->quiet() && !touched.empty() && world_->dice.Chance(world_->shape.failed_commits / 2)) {
    world_->Say("imgd: crashes after the commit, before it answers");
    Crash(world_->dice.Between(milliseconds(100), seconds(20)));
    answer(false);
    return;
  }
  answer(true);
  Send(actions, sessions);
}

/// What is asked for goes out by the stream that the node had then, though it may have a new one by now.
void Daemon::Address(const Actions& actions, std::vector<uint64_t>& sessions) const {
  for (size_t i = sessions.size(); i < actions.size(); ++i) {
    const NodeRecord* node = reactor_.state().FindNode(NodeOf(actions[i]));
    sessions.push_back(node != nullptr && node->Connected() ? node->session : 0);
  }
}

void Daemon::Undo() {
  world_->Say("imgd: the commit failed; everything is as it was stored");
  reactor_.Rollback();
  positions_ = stored_positions_;
  touched_positions_.clear();
  disturbed_ = world_->time.now().steady;
  world_->ledger.Disturb();
  world_->network.CloseAllByDaemon();
}

bool Daemon::CommitFails(bool touched) {
  if (!touched || world_->quiet()) return false;
  return disk_full_until_ > world_->time.now().steady || world_->dice.Chance(world_->shape.failed_commits);
}

void Daemon::Store(const Actions& actions) {
  const auto touched = reactor_.state().TouchedJobs();
  for (const JobId id : touched) {
    JobRecord& stored = jobs_[id];
    stored = *reactor_.state().FindJob(id);
    AsStored(stored);
  }
  for (const NodeId& id : reactor_.state().TouchedNodes()) {
    const NodeRecord* node = reactor_.state().FindNode(id);
    if (node == nullptr) {
      nodes_.erase(id);
    } else {
      NodeRecord& stored = nodes_[id];
      stored = *node;
      AsStored(stored);
    }
  }
  const bool ranked = std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return std::holds_alternative<SaveRungResult>(action);
  });
  const bool of_sweep = std::any_of(touched.begin(), touched.end(), [this](JobId id) {
    return reactor_.state().FindJob(id)->sweep != JobId();
  });
  if (ranked || of_sweep) sweeps_ = reactor_.state().sweeps();
  if (!reactor_.state().TouchedUsage().empty()) usage_ = reactor_.state().usage();
  if (!reactor_.state().TouchedAccounts().empty()) accounts_ = reactor_.state().accounts();
  world_->ledger.Stored();
  for (const auto& key : touched_positions_) stored_positions_[key] = positions_[key];
  touched_positions_.clear();
}

void Daemon::Send(const Actions& actions, const std::vector<uint64_t>& sessions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (const auto* disconnect = std::get_if<Disconnect>(&actions[i])) {
      world_->network.CloseByDaemon(disconnect->session);
    } else if (sessions[i] != 0) {
      world_->network.ToAgent(sessions[i], [action = actions[i]](Agent& agent) { agent.Obey(action); });
    }
  }
}

/// What has ended otherwise than it had to by now is left out, as a user does who is told so.
void Daemon::LeaveOutBroken(Submission& submission) {
  std::erase_if(submission.after, [this](const Dependency& dependency) {
    Submission alone;
    alone.after.push_back(dependency);
    return !reactor_.MaySubmit(alone);
  });
}

/// Who has too many jobs waiting is told so, and gives up.
bool Daemon::IsRefused(const Submission& submission, const std::vector<Submission>& members) {
  Submission wanted = submission;
  wanted.after.clear();
  return !reactor_.MaySubmit(wanted, members);
}

void Daemon::SubmitSweep(const SweepSubmission& submission) {
  const auto id = std::make_shared<JobId>();
  Call(
      [this, submission, id](Actions& out) {
        SweepSubmission sweep = submission;
        if (IsRefused(sweep.members.front(), sweep.members)) return;
        for (auto& member : sweep.members) LeaveOutBroken(member);
        *id = reactor_.OnSubmitSweep(sweep, world_->time.now(), out);
        const auto members = static_cast<uint32_t>(sweep.members.size());
        for (uint32_t i = 0; i < members; ++i)
          world_->ledger.after[JobId(id->value() + i)] = sweep.members[i].after;
        world_->ledger.sweeps[*id] = {sweep.name, *id, members, sweep.max_running, sweep.halving};
      },
      [this, submission, id](bool stored) {
        if (!stored) {
          world_->time.After(seconds(5), [this, submission] { SubmitSweep(submission); });
          return;
        }
        for (uint32_t i = 0; *id != JobId() && i < submission.members.size(); ++i)
          world_->ledger.Acknowledged(JobId(id->value() + i));
      });
}

void Daemon::Submit(const Submission& submission) {
  const auto id = std::make_shared<JobId>();
  Call(
      [this, submission, id](Actions& out) {
        Submission job = submission;
        if (IsRefused(job)) return;
        LeaveOutBroken(job);
        *id = reactor_.OnSubmit(job, world_->time.now(), out);
        world_->ledger.after[*id] = job.after;
      },
      [this, submission, id](bool stored) {
        if (stored) {
          if (*id != JobId()) world_->ledger.Acknowledged(*id);
          return;
        }
        // As a client does that gets no answer.
        world_->time.After(seconds(5), [this, submission] { Submit(submission); });
      });
}

void Daemon::Cancel(JobId job, bool checkpoint_first) {
  const auto taken = std::make_shared<bool>(false);
  Call(
      [this, job, checkpoint_first, taken](Actions& out) {
        *taken = reactor_.OnCancel(job, checkpoint_first, "sim", world_->time.now(), out).has_value();
      },
      [this, job, taken](bool stored) {
        if (stored && *taken) world_->ledger.CancelAcknowledged(job);
      });
}

void Daemon::Pause(JobId job) {
  Call([this, job](Actions& out) {
    if (!reactor_.OnPause(job, "sim", world_->time.now(), out)) return;
    world_->ledger.asked.paused.insert(job);
    world_->ledger.asked.changed = true;
  });
}

void Daemon::Resume(JobId job) {
  Call([this, job](Actions& out) {
    const JobRecord* known = reactor_.state().FindJob(job);
    if (known == nullptr || known->state != JobState::kPaused) return;
    if (!reactor_.OnResume(job, "sim", world_->time.now(), out)) {
      const bool ended = reactor_.OnCancel(job, false, "sim", world_->time.now(), out).has_value();
      if (!ended) world_->Break("what is paused can go on", fmt::format("job {} can't", job));
    }
    world_->ledger.asked.paused.erase(job);
    world_->ledger.asked.changed = true;
  });
}

void Daemon::Move(JobId job) {
  Call([this, job](Actions& out) { (void)reactor_.OnMove(job, "sim", world_->time.now(), out); });
}

void Daemon::SetPriority(JobId job, int priority) {
  Call([this, job, priority](Actions& out) {
    (void)reactor_.OnSetPriority(job, priority, "sim", world_->time.now(), out);
  });
}

void Daemon::SetTimeLimit(JobId job, TimeLimitChange change) {
  Call([this, job, change](Actions& out) {
    // By when something comes free may be another time now.
    if (reactor_.OnSetTimeLimit(job, change, "sim", world_->time.now(), out)) world_->ledger.promise.reset();
  });
}

void Daemon::TakeUpSettings() {
  Call([this](Actions&) { reactor_.SetSettings(world_->settings); });
}

void Daemon::SetAside(const NodeId& node, bool drain) {
  Call([this, node, drain](Actions& out) {
    if (!reactor_.OnSetAside(node, drain, "a fan is loud", "sim", world_->time.now(), out)) return;
    world_->ledger.asked.aside[node] = drain;
    world_->ledger.asked.changed = true;
  });
}

void Daemon::Forget(const NodeId& node) {
  ClearNode(node,
            [this, node](Actions& out) { return reactor_.OnForget(node, "sim", world_->time.now(), out); });
}

void Daemon::Return(const NodeId& node, bool drained) {
  ClearNode(node, [this, node, drained](Actions& out) {
    return reactor_.OnReturn(node, drained, "sim", world_->time.now(), out);
  });
}

/// Nobody has set it aside from now on, and its strikes are forgotten.
void Daemon::ClearNode(const NodeId& node, std::function<Status(Actions&)> ask) {
  const auto taken = std::make_shared<bool>(false);
  Call(
      [this, node, ask = std::move(ask), taken](Actions& out) {
        *taken = ask(out).has_value();
        if (!*taken) return;
        world_->ledger.asked.aside.erase(node);
        world_->ledger.asked.changed = true;
      },
      [this, node, taken](bool stored) {
        if (stored && *taken) world_->ledger.Returned(node);
      });
}

void Daemon::OnHello(uint64_t session, NodeHello hello) {
  const auto taken = std::make_shared<bool>(false);
  const auto heard = [this, taken, node = hello.node](bool stored) {
    // What was undone was never heard.
    if (stored && *taken) world_->ledger.Heard(node, world_->time.now().steady);
  };
  Call(
      [this, session, taken, hello = std::move(hello)](Actions& out) {
        const NodeRecord* known = reactor_.state().FindNode(hello.node);
        const uint64_t old = known == nullptr ? 0 : known->session;
        const std::string old_agent = known == nullptr ? "" : known->agent_id;
        if (hello.devices.empty() && old == 0)
          return;  // the second agent comes while the first is there, or never
        if (!reactor_.OnAgentHello(hello, session, world_->time.now(), out)) {
          world_->Say("imgd: refuses a second agent of the name {}", hello.node);
          world_->network.CloseByDaemon(session);
          return;
        }
        if (old != 0 && old_agent != hello.agent_id) {
          world_->Break("one agent a name", fmt::format("node {} is two agents", hello.node));
        }
        *taken = true;
        world_->ledger.ill[hello.node] = !hello.health.problems.empty();
        world_->ledger.Noticed(hello.node, hello.health.notice);
        world_->ledger.foreign.erase(hello.node);
        for (const auto& run : hello.runs) {
          if (!run.cluster.empty()) world_->ledger.foreign[hello.node] = run.devices.front();
        }
        if (old != 0) world_->network.CloseByDaemon(old);
        // The Welcome: from which events of its runs to send again.
        Positions positions;
        for (const auto& run : hello.runs) {
          for (auto known = stored_positions_.lower_bound({run.run, 0});
               known != stored_positions_.end() && known->first.first == run.run; ++known)
            positions.insert(*known);
        }
        world_->network.ToAgent(session, [positions](Agent& agent) { agent.OnWelcome(positions); });
      },
      heard);
}

void Daemon::OnGone(const NodeId& node, uint64_t session) {
  Call([this, node, session](Actions&) { reactor_.OnAgentGone(node, session); });
}

void Daemon::OnMessage(const NodeId& node, uint64_t session, std::function<void(Actions&)> call,
                       Answer answer) {
  Call(
      [this, node, session, call = std::move(call)](Actions& out) {
        const NodeRecord* known = reactor_.state().FindNode(node);
        if (known == nullptr || known->session != session) return;
        reactor_.OnHeard(node, world_->time.now());
        world_->ledger.Heard(node, world_->time.now().steady);
        call(out);
      },
      std::move(answer));
}

void Daemon::OnEvent(const NodeId& node, uint64_t session, RunKey run, uint32_t rank, uint64_t number,
                     std::function<void(Actions&)> take) {
  const auto last = std::make_shared<uint64_t>(0);
  OnMessage(
      node, session,
      [this, node, run, rank, number, last, take = std::move(take)](Actions& out) {
        uint64_t& known = positions_[{run, rank}];
        if (!reactor_.AcceptsReportsOf(node, run, rank)) {
          known = std::max(known, number);  // refused for good
        } else if (number == known + 1) {
          known = number;
          reactor_.OnRelayed(run, world_->time.now());
          take(out);
        }
        *last = known;
        touched_positions_.insert({run, rank});
      },
      [this, session, run, rank, last](bool stored) {
        if (!stored || *last == 0) return;
        world_->network.ToAgent(session,
                                [run, rank, last](Agent& agent) { agent.OnAcknowledged(run, rank, *last); });
      });
}

void Daemon::Crash(Duration away) {
  if (!up_) return;
  up_ = false;
  awake_ = false;
  ++life_;
  for (const auto& input : std::exchange(inputs_, {})) {
    if (input.answer) input.answer(false);
  }
  world_->network.CloseAllByDaemon();
  world_->time.After(away, [this] { Restart(); });
}

void Daemon::Restart() {
  world_->Say("imgd: starts again");
  std::vector<JobRecord> jobs;
  JobId next(1);
  for (const auto& [id, job] : jobs_) {
    jobs.push_back(job);
    next = JobId(id.value() + 1);
  }
  std::vector<NodeRecord> nodes;
  for (const auto& [id, node] : nodes_) nodes.push_back(node);
  reactor_ = Reactor(world_->settings, "cafe0123");
  std::vector<SweepRecord> sweeps;
  for (const auto& [id, sweep] : sweeps_) sweeps.push_back(sweep);
  reactor_.Restore(std::move(jobs), std::move(nodes), next, world_->time.now(), usage_, std::move(sweeps),
                   accounts_);
  positions_ = stored_positions_;
  touched_positions_.clear();
  up_ = true;
  asleep_until_ = {};
  TickAfter(world_->shape.tick);
  for (const auto& [id, node] : nodes_) {
    // Silence is counted anew, of those that were not out of reach already.
    if (node.state == NodeState::kReady) world_->ledger.heard[id] = world_->time.now().steady;
  }
  disturbed_ = world_->time.now().steady;
  world_->ledger.Disturb();
}

void Daemon::Sleep(Duration time) {
  if (!up_ || asleep_until_ > world_->time.now().steady) return;
  asleep_until_ = world_->time.now().steady + time;
  disturbed_ = asleep_until_;
}

void Daemon::FillDisk(Duration time) { disk_full_until_ = world_->time.now().steady + time; }

void Daemon::EmptyDisk() { disk_full_until_ = asleep_until_ = {}; }

}  // namespace imgd::sim
