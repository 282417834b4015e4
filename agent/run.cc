#include "agent/run.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>

#include "agent/cgroup.h"
#include "agent/network.h"
#include "agent/process.h"
#include "common/release.h"
#include "common/utf8.h"
#include "common/version.h"

namespace imgd {
namespace {
/// How often a shim that holds its lock but does not answer is tried again.
constexpr auto kConnectRetry = std::chrono::milliseconds(100);

uint64_t MillisecondsOf(Duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}
}  // namespace

Run::Run(EventLoop* loop, RunKey key, std::function<void(Run&)> on_change)
    : loop_(loop), key_(std::move(key)), on_change_(std::move(on_change)) {}

Run::~Run() {
  loop_->Cancel(timer_);
  loop_->Cancel(start_timer_);
  for (const auto& pidfd : leftovers_) loop_->Unwatch(pidfd.get());
}

Status Run::HoldPort(const std::string& address) {
  IMGD_ASSIGN(auto listener, ListenOn(address));
  listener_ = std::move(listener.fd);
  port_ = listener.port;
  port_address_ = address;
  phase_ = v1::RUN_PHASE_PREPARED;
  return {};
}

void Run::Start(const RunStart& start) {
  const auto begin = [&]() -> Status {
    if (start.spec.first_rank == 0 && !listener_.valid()) {
      return Fail(
          ErrorCode::kFailedPrecondition,
          "the rendezvous port {} of run {} is not held here: the agent was restarted after it was prepared",
          start.spec.master_port, key_.ToString());
    }
    IMGD_ASSIGN(
        dir_, CreateRunDir(start.runs, start.spec, start.job_yaml, start.resume_from, start.last_generation));
    spec_ = start.spec;
    relay_.emplace(*dir_, spec_);
    IMGD_ASSIGN(const UniqueFd lock, LockShim(*dir_));
    return StartShim({start.shim_program, *dir_, listener_.get(), lock.get()});
  };
  const auto begun = begin();
  listener_.reset();  // the shim has it now, or nobody needs it
  if (begun) {
    phase_ = v1::RUN_PHASE_PREPARED;
    ConnectToShim();
    return;
  }
  Refuse(begun.error().ToString());
}

void Run::Refuse(std::string start_error) {
  start_error_ = std::move(start_error);
  spdlog::error("run={} msg=\"not started: {}\"", key_.ToString(), start_error_);
  listener_.reset();
  RemoveDir();
  SetPhase(v1::RUN_PHASE_GONE);
}

void Run::Attach(RunDir dir, RunSpec spec) {
  dir_ = std::move(dir);
  spec_ = std::move(spec);
  relay_.emplace(*dir_, spec_);
  if (auto record = LoadRunRecord(*dir_)) {
    record_ = std::move(*record);
  } else {
    spdlog::error("run={} msg=\"{}\"", key_.ToString(), record.error().ToString());
  }
  CheckShim();
  phase_ = v1::RUN_PHASE_PREPARED;
  if (record_ && record_->phase == ShimPhase::kRunning) phase_ = v1::RUN_PHASE_RUNNING;
  if (record_ && record_->phase == ShimPhase::kStopping) phase_ = v1::RUN_PHASE_STOPPING;
  ConnectToShim();
}

void Run::ConnectToShim() {
  if (const auto lock = LockShim(*dir_); lock || lock.error().code != ErrorCode::kAlreadyExists) {
    EndWithoutShim();
    return;
  }
  auto client = ShimClient::Connect(loop_, *dir_,
                                    {.on_record = [this](RunRecord record) { OnRecord(std::move(record)); },
                                     .on_closed =
                                         [this] {
                                           shim_.reset();
                                           ConnectToShim();
                                         }});
  if (!client) {
    // It is on its way up or down; its lock says when it is gone.
    timer_ = loop_->After(kConnectRetry, [this] { ConnectToShim(); });
    return;
  }
  shim_ = std::move(*client);
  if (stop_request_) shim_->Stop(stop_request_->grace_ms, stop_request_->checkpoint_first);
}

void Run::OnRecord(RunRecord record) {
  record_ = std::move(record);
  CheckShim();
  if (!record_->start_error.empty()) start_error_ = record_->start_error;
  switch (record_->phase) {
    case ShimPhase::kStarting:
    case ShimPhase::kGone:  // only when the shim itself has ended, too
      return;
    case ShimPhase::kRunning:
      SetPhase(phase_ == v1::RUN_PHASE_STOPPING ? phase_ : v1::RUN_PHASE_RUNNING);
      return;
    case ShimPhase::kStopping:
      SetPhase(v1::RUN_PHASE_STOPPING);
      return;
  }
}

void Run::CheckShim() {
  if (shim_checked_ || !record_) return;
  shim_checked_ = true;
  const std::string why =
      WhyNotFit({"imgagent", kVersion}, {"imgagent-shim", OneLine(record_->version)}, "shims");
  if (why.empty()) return;
  spdlog::warn("run={} msg=\"{}; the run goes on, and what it says may be misunderstood\"", key_.ToString(),
               why);
}

void Run::EndWithoutShim() {
  if (!record_ || record_->phase != ShimPhase::kGone) {
    if (auto record = LoadRunRecord(*dir_); record && *record) record_ = std::move(*record);
  }
  if (record_ && record_->phase == ShimPhase::kGone) {
    SetGone(true);
    return;
  }
  spdlog::warn("run={} msg=\"its shim ended without a word; looking for processes that it left\"",
               key_.ToString());
  KillLeftovers();
}

void Run::KillLeftovers() {
  for (const auto& pidfd : leftovers_) loop_->Unwatch(pidfd.get());
  leftovers_.clear();
  if (record_) Cgroup(record_->cgroup).Kill();
  for (const pid_t pid : LeftoverProcesses(*dir_, record_)) {
    UniqueFd pidfd = PidfdOpen(pid);
    if (!pidfd.valid()) continue;
    PidfdSignal(pidfd.get(), SIGKILL);
    if (loop_->Watch(pidfd.get(), EPOLLIN, [this](uint32_t) { KillLeftovers(); }))
      leftovers_.push_back(std::move(pidfd));
  }
  if (leftovers_.empty()) SetGone(false);
}

void Run::SetGone(bool shim_said_so) {
  if (!record_) {
    start_error_ = "the agent or the run's shim ended before a rank was started";
    record_ = RunRecord{.boot_id = BootId()};
  }
  if (record_->boot_id != BootId()) LoseRanks();
  if (!shim_said_so) {
    Cgroup(record_->cgroup).Remove();
    for (auto& rank : record_->ranks) {
      if (rank.state == RankState::kExited || rank.state == RankState::kLost) continue;
      rank.state = RankState::kExited;
      rank.signal = SIGKILL;
      rank.last_error_line = "[imgagent] the shim of this run was killed, and its ranks with it";
    }
    record_->phase = ShimPhase::kGone;
    if (const auto saved = SaveRunRecord(*dir_, *record_); !saved) {
      spdlog::warn("run={} msg=\"{}\"", key_.ToString(), saved.error().message);
    }
  }
  if (!record_->start_error.empty()) start_error_ = record_->start_error;
  relay_->SetGone(*record_, shim_said_so);
  SetPhase(v1::RUN_PHASE_GONE);
}

void Run::LoseRanks() {
  spdlog::info("run={} msg=\"the machine was restarted since it ran\"", key_.ToString());
  for (auto& rank : record_->ranks) {
    // A machine that is shut down tells all processes to end.
    if (rank.state != RankState::kExited || rank.told) rank.state = RankState::kLost;
  }
}

void Run::Stop(int64_t grace_ms, bool checkpoint_first) {
  if (phase_ == v1::RUN_PHASE_GONE) {
    on_change_(*this);
    return;
  }
  if (!dir_) {
    listener_.reset();
    SetPhase(v1::RUN_PHASE_GONE);
    return;
  }
  stop_request_ = {grace_ms, checkpoint_first};
  if (shim_) shim_->Stop(grace_ms, checkpoint_first);
  // While it starts its ranks a shim takes no commands.
  constexpr auto kToTakeIt = std::chrono::seconds(5);
  const auto grace = std::chrono::milliseconds(std::min(grace_ms, spec_.grace_ms));
  loop_->Cancel(start_timer_);
  start_timer_ = loop_->After(grace + kToTakeIt, [this] { EndHungStart(); });
  SetPhase(v1::RUN_PHASE_STOPPING);
}

void Run::EndHungStart() {
  const bool has_started = record_ && record_->phase != ShimPhase::kStarting;
  if (phase_ == v1::RUN_PHASE_GONE || has_started) return;
  // It may have started since its shim spoke.
  const auto record = LoadRunRecord(*dir_);
  if (!record || !*record || (*record)->phase != ShimPhase::kStarting || (*record)->boot_id != BootId())
    return;
  const auto pid = static_cast<pid_t>((*record)->shim_pid);
  const UniqueFd pidfd = PidfdOpen(pid);
  if (!pidfd.valid() || !IsAlive(pid, (*record)->shim_start_time)) return;
  spdlog::warn("run={} msg=\"its start hangs, as on a folder that does not answer: its shim is killed\"",
               key_.ToString());
  PidfdSignal(pidfd.get(), SIGKILL);  // and who sees that its lock is free goes on
}

void Run::SetPhase(v1::RunPhase phase) {
  phase_ = phase;
  on_change_(*this);
}

uint32_t Run::running_ranks() const {
  if (!record_) return 0;
  return static_cast<uint32_t>(
      std::count_if(record_->ranks.begin(), record_->ranks.end(),
                    [](const RankRecord& rank) { return rank.state == RankState::kRunning; }));
}

v1::RunPulse Run::LookAtPulses(Instant now) {
  constexpr size_t kLineBytes = 200;
  constexpr auto kSilent = std::chrono::seconds(2);  ///< a process that runs beats twice a second
  v1::RunPulse message;
  message.mutable_run()->set_job_id(key_.job.value());
  message.mutable_run()->set_generation(key_.generation.value());
  if (!dir_) return message;
  pulses_.resize(spec_.local_world_size);
  for (uint32_t i = 0; i < pulses_.size(); ++i) {
    const auto seen = pulses_[i].Look(*dir_, i, now);
    if (!seen) continue;
    auto* rank = message.add_ranks();
    rank->set_rank(spec_.first_rank + i);
    rank->set_step(seen->state.step);
    rank->set_collectives(seen->state.collectives);
    rank->set_what(ToUtf8(seen->state.what));
    rank->set_silent_ms(MillisecondsOf(seen->silent));
    rank->set_still_ms(MillisecondsOf(seen->still));
    rank->set_silence_limit_ms(seen->state.silence_limit_ms);
    rank->set_limit_ms(seen->state.limit_ms);
    rank->set_unanswered(ToUtf8(seen->state.unanswered));
    rank->set_last_line(ToUtf8(relay_->LastLine(i).substr(0, kLineBytes)));
    rank->set_dumping_core(seen->silent >= kSilent && DumpsCore(i));
  }
  return message;
}

bool Run::DumpsCore(uint32_t local_rank) const {
  if (!record_ || local_rank >= record_->ranks.size()) return false;
  const RankRecord& rank = record_->ranks[local_rank];
  return rank.state == RankState::kRunning && IsDumpingCore(static_cast<pid_t>(rank.pid));
}

bool Run::HoldsDevice(uint32_t device) const {
  if (phase_ == v1::RUN_PHASE_GONE || !dir_) return false;
  return std::find(spec_.devices.begin(), spec_.devices.end(), device) != spec_.devices.end();
}

void Run::RemoveDir() {
  if (!dir_) return;
  const auto ranks = dir_->Ranks();
  const auto remove_pulses = [&]() -> Status {
    for (uint32_t i = 0; i < spec_.local_world_size; ++i) RemovePulse(ranks / PulseFileName(i));
    return {};
  };
  std::error_code error;
  if (spec_.user.given()) {
    // What another user made only he may remove; the agent does the rest, and says what is left.
    (void)DoAs(spec_.user, [&] {
      for (const auto& entry : std::filesystem::directory_iterator(ranks, error)) {
        if (!entry.path().filename().native().starts_with("pulse."))
          std::filesystem::remove_all(entry, error);
      }
      return remove_pulses();
    });
  } else {
    (void)remove_pulses();
  }
  std::filesystem::remove_all(dir_->path, error);
  if (error)
    spdlog::error("run={} msg=\"cannot remove {}: {}\"", key_.ToString(), dir_->path.native(),
                  error.message());
  relay_.reset();
  dir_.reset();
}

v1::RunStatus Run::StatusMessage() const {
  v1::RunStatus status;
  status.mutable_run()->set_job_id(key_.job.value());
  status.mutable_run()->set_generation(key_.generation.value());
  status.set_cluster_id(key_.cluster);
  status.set_phase(phase_);
  if (phase_ != v1::RUN_PHASE_GONE) status.mutable_devices()->Add(spec_.devices.begin(), spec_.devices.end());
  status.set_start_error(ToUtf8(start_error_));
  if (!record_) return status;
  for (const auto& rank : record_->ranks) {
    if (rank.state == RankState::kRunning) {
      auto* running = status.add_ranks();
      running->set_rank(rank.rank);
      running->set_pid(rank.pid);
    }
    if (rank.state != RankState::kExited) continue;
    auto* exit = status.add_exits();
    exit->set_rank(rank.rank);
    exit->set_exit_code(rank.exit_code);
    exit->set_signal(rank.signal);
    exit->set_last_error_line(ToUtf8(rank.last_error_line));
    for (const auto& line : rank.last_lines) exit->add_last_lines(ToUtf8(line));
    exit->set_pid(rank.pid);
    exit->set_told(rank.told);
  }
  return status;
}

}  // namespace imgd
