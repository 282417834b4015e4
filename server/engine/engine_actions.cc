#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/utf8.h"
#include "server/core/explain.h"
#include "server/engine/engine.h"

/// The engine's way from the reactor's actions to the store and the agents.
namespace imgd {
namespace {

void SetRun(v1::RunId* out, RunKey run) {
  out->set_job_id(run.job.value());
  out->set_generation(run.generation.value());
}

static_assert(static_cast<int>(JobKind::kConversion) == v1::JOB_KIND_CONVERSION);
static_assert(static_cast<int>(PatternAction::kLabel) == v1::PATTERN_ACTION_LABEL);
static_assert(static_cast<int>(PatternAction::kExcludeNode) == v1::PATTERN_ACTION_EXCLUDE_NODE);

uint32_t Milliseconds(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

}  // namespace

v1::LogMatch ToProto(const LogMatch& match) {
  v1::LogMatch out;
  out.set_pattern(match.pattern);
  out.set_label(match.label);
  out.set_line(match.line);
  out.set_action(static_cast<v1::PatternAction>(match.action));
  return out;
}

void Engine::Record(Actions& actions) {
  for (const auto& action : actions) {
    std::visit([this](const auto& known) { Apply(known); }, action);
  }
  if (!actions.empty()) view_changed_ = true;
  actions.clear();
}

uint64_t Engine::NextEventNumber(JobId job) {
  auto known = event_numbers_.find(job);
  if (known == event_numbers_.end()) {
    const uint64_t last =
        std::max(OrFail(state_.LastEventNumber(job)), OrFail(metrics_.LastEventNumber(job)));
    if (failed_) return 0;
    known = event_numbers_.emplace(job, last).first;
    // Before any number of this batch is in a file: readers who ask from now on do not read past it.
    events_.Publish(job, last);
  }
  // Never taken back, also not when the batch fails: the number may be in one of the files already.
  const uint64_t number = ++known->second;
  new_events_[job] = number;
  return number;
}

void Engine::AppendMetric(RunKey run, uint32_t rank, uint64_t sequence, EventKind kind, int64_t time_us,
                          std::string payload) {
  metrics_.AppendEvent({.run = run,
                        .number = NextEventNumber(run.job),
                        .rank = rank,
                        .sequence = sequence,
                        .kind = kind,
                        .time_us = time_us,
                        .payload = std::move(payload)});
}

void Engine::Apply(const AppendEvent& action) {
  const uint64_t number = NextEventNumber(action.job);
  state_.AppendEvent(number, action);
  AppendDecision({.job = action.job, .reason = action.reason, .actor = action.actor, .time = action.time},
                 number);
  if (action.to == JobState::kStarting) {
    state_.SavePlacement({action.job, action.generation}, reactor_.state().FindJob(action.job)->run.parts);
  }
  if (IsFinal(action.to)) SettlePromise(action.job, action.to);
  TellPeople(action, number);
  new_logs_.insert(action.job);  // those who follow its logs want to know that it ended
  done_.push_back([this, action](const Status& status) {
    if (!status) return;
    meters_.OnEvent(action);
    const bool new_state = action.first || action.from != action.to;
    spdlog::log(new_state ? spdlog::level::info : spdlog::level::debug,
                "job={} gen={} from={} to={} actor=\"{}\" msg=\"{}\"", action.job, action.generation,
                action.first ? "NONE" : NameOf(action.from), NameOf(action.to), action.actor,
                action.reason.text);
  });
}

void Engine::AppendDecision(const imgd::AppendDecision& decision, uint64_t job_event) {
  imgd::AppendDecision line = decision;
  line.reason.text = OneLine(line.reason.text);
  line.actor = OneLine(line.actor);
  state_.AppendDecision(++last_decision_, line, job_event);
}

void Engine::Apply(const imgd::AppendDecision& action) {
  AppendDecision(action);
  done_.push_back([this, action](const Status& status) {
    if (!status) return;
    meters_.OnDecision(action);
    spdlog::info(
        "{} actor=\"{}\" msg=\"{}\"",
        action.node.name().empty() ? fmt::format("job={}", action.job) : fmt::format("node={}", action.node),
        action.actor, action.reason.text);
  });
}

void Engine::Apply(const AppendRankExit& action) {
  v1::RankExit exit;
  exit.set_rank(action.exit.rank);
  exit.set_exit_code(action.exit.exit_code);
  exit.set_signal(action.exit.signal);
  exit.set_last_error_line(action.exit.last_error_line);
  exit.set_pid(action.exit.pid);
  exit.set_told(action.exit.told);
  exit.set_program(!reactor_.state().FindJob(action.run.job)->Trains());
  if (action.exit.match) *exit.mutable_match() = ToProto(*action.exit.match);
  AppendMetric(action.run, action.exit.rank, kExitSequence, EventKind::kRankExit, action.time.micros,
               exit.SerializeAsString());
}

void Engine::Apply(const SaveCheckpoint& action) { state_.SaveCheckpoint(action); }

void Engine::Apply(const SaveRungResult& action) { state_.SaveRungResult(action); }

void Engine::Apply(const SendPrepare& action) {
  v1::ConnectResponse message;
  SetRun(message.mutable_prepare_run()->mutable_run(), action.run);
  SendToNode(action.node, std::move(message));
}

void Engine::Apply(const SendStart& action) {
  v1::ConnectResponse message;
  auto* start = message.mutable_start_run();
  SetRun(start->mutable_run(), action.run);
  start->set_job_yaml(OrFail(state_.JobFile(action.run.job)));
  start->set_job_name(action.job_name);
  start->set_kind(static_cast<v1::JobKind>(action.kind));
  start->set_first_rank(action.first_rank);
  start->set_ranks(action.ranks);
  start->mutable_devices()->Add(action.devices.begin(), action.devices.end());
  start->set_world_size(action.world_size);
  start->set_node_count(action.node_count);
  start->set_node_rank(action.node_rank);
  start->set_master_address(action.master_address);
  start->set_master_port(action.master_port);
  start->set_checkpoint_dir(action.checkpoint_dir);
  for (const auto& path : action.resume_from) start->add_resume_from(path);
  start->set_last_generation(action.last_writer.value());
  start->set_grace_ms(Milliseconds(action.grace_ms));
  SendToNode(action.node, std::move(message));
}

void Engine::Apply(const SendStop& action) {
  v1::ConnectResponse message;
  SetRun(message.mutable_stop_run()->mutable_run(), action.run);
  message.mutable_stop_run()->set_checkpoint_first(action.checkpoint_first);
  message.mutable_stop_run()->set_grace_ms(Milliseconds(action.grace_ms));
  SendToNode(action.node, std::move(message));
}

void Engine::Apply(const SendForget& action) {
  v1::ConnectResponse message;
  SetRun(message.mutable_forget_run()->mutable_run(), action.run);
  SendToNode(action.node, std::move(message));
}

void Engine::Apply(const Disconnect& action) { CloseSession(action.session, action.why); }

Result<const JobRecord*> Engine::RunningJob(JobId id) {
  const JobRecord* job = reactor_.state().FindJob(id);
  if (job == nullptr) {
    const auto stored = OrFail(state_.FindJob(id));
    if (!stored) return Fail(ErrorCode::kNotFound, "there is no job {}", id);
    return Fail(ErrorCode::kFailedPrecondition, "job {} has ended already ({})", id, NameOf(stored->state));
  }
  if (job->state != JobState::kRunning) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} does not run now: it is {}", id, NameOf(job->state));
  }
  if (!job->by_hand) return job;
  return Fail(ErrorCode::kFailedPrecondition,
              "job {} was {}; imgd has no part in it and can't reach its ranks", id,
              ExplainByHand(*job->by_hand));
}

Result<RankSite> Engine::SiteOf(const JobRecord& job, uint32_t rank) const {
  for (const auto& part : job.run.parts) {
    if (!part.Has(rank)) continue;
    const NodeRecord* node = reactor_.state().FindNode(part.node);
    if (node != nullptr && node->Connected()) return RankSite{part.node, job.generation};
    return Fail(ErrorCode::kFailedPrecondition, "node {}, which has rank {}, is out of reach",
                part.node.name(), rank);
  }
  return Fail(ErrorCode::kNotFound, "job {} has ranks 0 to {}; found {}", job.id, job.WorldSize() - 1, rank);
}

/// Changes nothing that is stored: a request that is lost on its way is made again by whoever waits for it.
Result<std::string> Engine::AskForProfile(const ProfileInput& input) {
  auto running = RunningJob(input.job);
  if (!running) {
    const JobRecord* job = reactor_.state().FindJob(input.job);
    if (job != nullptr && job->by_hand) running.error().hint = "start it with imgtrain --profile FILE";
    return tl::unexpected(std::move(running).error());
  }
  const JobRecord& job = **running;
  if (!job.Trains()) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} is a {}; only training has steps to profile",
                input.job, NameOf(job.kind));
  }
  IMGD_ASSIGN(const RankSite site, SiteOf(job, input.rank));
  v1::ConnectResponse message;
  SetRun(message.mutable_profile_run()->mutable_run(), {job.id, job.generation});
  message.mutable_profile_run()->set_rank(input.rank);
  message.mutable_profile_run()->set_steps(input.steps);
  SendToNode(site.node, std::move(message));
  return site.node.name();
}

void Engine::SendToNode(const NodeId& node, v1::ConnectResponse message) {
  const NodeRecord* known = reactor_.state().FindNode(node);
  if (known != nullptr && known->Connected()) SendToSession(known->session, std::move(message));
}

void Engine::SendToSession(uint64_t session, v1::ConnectResponse message) {
  const auto connected = links_.find(session);
  if (connected == links_.end()) return;
  done_.push_back(
      [link = connected->second.link, message = std::move(message)](const Status& status) mutable {
        if (status) link->Send(std::move(message));
      });
}

void Engine::CloseSession(uint64_t session, Error why) {
  const auto connected = links_.find(session);
  if (connected == links_.end()) return;
  done_.push_back([link = connected->second.link, why = std::move(why)](const Status&) { link->Close(why); });
  links_.erase(connected);
  EndScrapesOf(session);
}

}  // namespace imgd
