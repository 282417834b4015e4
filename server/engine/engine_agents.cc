#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "common/device_figures.h"
#include "common/release.h"
#include "common/utf8.h"
#include "imgd/v1/job.pb.h"
#include "server/core/job.h"
#include "server/engine/agent_version.h"
#include "server/engine/engine.h"

/// What agents say, turned into the reactor's events and the store's rows.
namespace imgd {
namespace {

RunKey RunOf(const v1::RunId& run) { return {JobId(run.job_id()), Generation(run.generation())}; }

std::vector<RankPulse> PulsesOf(const v1::RunPulse& message) {
  using std::chrono::milliseconds;
  std::vector<RankPulse> out;
  for (const auto& rank : message.ranks()) {
    out.push_back({.rank = rank.rank(),
                   .step = rank.step(),
                   .collectives = rank.collectives(),
                   .what = rank.what(),
                   .silent = milliseconds(rank.silent_ms()),
                   .still = milliseconds(rank.still_ms()),
                   .silence_limit = milliseconds(rank.silence_limit_ms()),
                   .limit = milliseconds(rank.limit_ms()),
                   .unanswered = rank.unanswered(),
                   .last_line = rank.last_line(),
                   .dumping_core = rank.dumping_core()});
  }
  return out;
}

/// How many events before this one the agent knows to be lost.
uint64_t MissingBefore(const v1::TrainerEvent& event) {
  return event.has_lost() && event.lost().count() > 0 ? event.lost().count() - 1 : 0;
}

/// Since its rank wrote it, whose clock is so far ahead; zero for one that does not say when.
Duration AgeOf(const v1::TrainerEvent& event, WallTime now, Duration clock_ahead) {
  if (event.time_us() <= 0) return Duration::zero();
  const Duration age = std::chrono::microseconds(now.micros - event.time_us()) + clock_ahead;
  return std::max(age, Duration::zero());
}

/// It goes to Prometheus as it is.
bool IsHostPort(const std::string& address) {
  const auto colon = address.rfind(':');
  return colon != std::string::npos && colon > 0 && colon + 1 < address.size() && address.size() <= 300 &&
         std::all_of(address.begin(), address.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view(".:-_[]%").find(static_cast<char>(c)) != std::string_view::npos;
         });
}

/// Of a message that has `problems`, `notice` and `time_us`.
template <typename Message>
Health HealthOf(const Message& message, WallTime received) {
  Health health;
  for (const auto& problem : message.problems()) {
    if (problem.kind() > v1::PROBLEM_KIND_UNSPECIFIED && problem.kind() <= v1::PROBLEM_KIND_SHARED_FOLDER)
      health.problems[static_cast<ProblemKind>(problem.kind())] = problem.text();
  }
  health.problems.erase(ProblemKind::kClock);  // the daemon's to judge
  if (message.has_notice())
    health.notice = Notice{{message.notice().at_us()}, message.notice().action().substr(0, 32)};
  if (message.time_us() > 0)
    health.clock_ahead = std::chrono::microseconds(message.time_us() - received.micros);
  return health;
}

}  // namespace

/// True also for one of which nothing is known.
bool Engine::HasGpu(RunKey run, uint32_t rank) const {
  const JobRecord* job = reactor_.state().FindJob(run.job);
  const Part* part = job == nullptr ? nullptr : PartOfRank(job->run, rank);
  const NodeRecord* node = part == nullptr ? nullptr : reactor_.state().FindNode(part->node);
  if (node == nullptr) return true;
  // One that has fallen off the bus is not among them any more.
  return !std::all_of(part->devices.begin(), part->devices.end(), [node](uint32_t index) {
    return std::any_of(node->devices.begin(), node->devices.end(),
                       [index](const Device& device) { return device.index == index && !device.IsGpu(); });
  });
}

RunReport Engine::ReportOf(const v1::RunStatus& status) const {
  RunReport report{.cluster = status.cluster_id(),
                   .run = RunOf(status.run()),
                   .phase = static_cast<RunPhase>(status.phase()),
                   .start_error = status.start_error(),
                   .devices = {status.devices().begin(), status.devices().end()}};
  for (const auto& exit : status.exits()) {
    report.exits.push_back({.rank = exit.rank(),
                            .exit_code = exit.exit_code(),
                            .signal = exit.signal(),
                            .last_error_line = exit.last_error_line(),
                            .pid = exit.pid(),
                            .told = exit.told()});
    if (exit.exit_code() == 0 && exit.signal() == 0) continue;
    std::vector<std::string> lines(exit.last_lines().begin(), exit.last_lines().end());
    if (lines.empty()) lines.push_back(exit.last_error_line());
    report.exits.back().match = log_matcher_->Find(lines, HasGpu(report.run, exit.rank()));
    report.exits.back().last_line = lines.back();
  }
  return report;
}

NodeHello Engine::HelloOf(const v1::Hello& hello, WallTime received) const {
  NodeHello out{.node = NodeId(hello.node()),
                .agent_id = hello.agent_id(),
                .agent_version = hello.version(),
                .incarnation = hello.incarnation(),
                .address = hello.address(),
                .filesystem_id = hello.filesystem_id(),
                .health = HealthOf(hello, received)};
  for (const auto& device : hello.devices()) {
    out.devices.push_back({device.index(), device.model(), device.uuid(), device.memory_bytes()});
  }
  for (const auto& folder : hello.shared_folders())
    out.shared_folders.push_back({folder.path(), folder.id()});
  for (const auto& [name, value] : hello.labels()) out.labels[name] = value;
  for (const auto& run : hello.runs()) out.runs.push_back(ReportOf(run));
  out.price_per_hour = std::max(hello.price_per_hour(), 0.0);
  if (IsHostPort(hello.metrics_address())) out.metrics_address = hello.metrics_address();
  out.metrics_relayed = hello.metrics_relayed();
  return out;
}

void Engine::Handle(AgentInput& input) {
  if (closing_) {
    input.link->Close({.code = ErrorCode::kUnavailable, .message = "the daemon is ending"});
    return;
  }
  const auto connected = links_.find(input.session);
  if (input.message.has_hello() && connected == links_.end()) {
    OnHello(input);
  } else if (connected != links_.end()) {
    // By value: what it says may end the connection.
    const NodeId node = connected->second.node;
    const NodeRecord* known = reactor_.state().FindNode(node);
    if (known != nullptr && known->session == input.session) OnMessage(input, node);
  } else {
    input.link->Close({.code = ErrorCode::kFailedPrecondition, .message = "a stream begins with a Hello"});
    return;
  }
  done_.push_back([link = input.link](const Status& status) {
    if (status) {
      link->Handled();
    } else {
      link->Close(status.error());  // also one whose Hello was in the batch
    }
  });
}

void Engine::Handle(GoneInput& input) {
  view_changed_ = true;
  const auto connected = links_.find(input.session);
  if (connected == links_.end()) return;
  spdlog::info("node={} session={} msg=\"agent disconnected\"", connected->second.node, input.session);
  reactor_.OnAgentGone(connected->second.node, input.session);
  links_.erase(connected);
  EndScrapesOf(input.session);
}

void Engine::Handle(CloseInput&) {
  closing_ = true;
  const Error why{.code = ErrorCode::kUnavailable, .message = "the daemon is ending"};
  for (const auto& [session, connected] : links_) {
    done_.push_back([link = connected.link, why](const Status&) { link->Close(why); });
  }
}

void Engine::OnHello(const AgentInput& input) {
  view_changed_ = true;
  const v1::Hello& hello = input.message.hello();
  const auto refuse = [this, &input, &hello](const Error& error) {
    // It comes again, soon.
    const std::string node = IsNodeName(hello.node()) ? hello.node() : "a node";
    const auto text = refusals_.Note(node, fmt::format("agent refused: {}", error.ToString()), now_.steady);
    if (text) spdlog::warn("node={} session={} msg=\"{}\"", node, input.session, *text);
    done_.push_back([link = input.link, error](const Status&) { link->Close(error); });
  };
  if (!IsNodeName(hello.node()) || hello.agent_id().empty()) {
    refuse({.code = ErrorCode::kInvalidArgument,
            .message =
                fmt::format("found node name '{}' and agent id '{}'; a name of 1 to 253 visible characters "
                            "without '/' and ',' and an id are needed",
                            hello.node(), hello.agent_id())});
    return;
  }
  if (const auto key = admissions_.nodes.find(hello.node());
      key != admissions_.nodes.end() && key->second.revoked) {
    refuse(
        {.code = ErrorCode::kPermissionDenied, .message = fmt::format("node {} was revoked", hello.node())});
    return;
  }
  if (auto works = CheckAgentVersion(settings_.version, hello.version()); !works) {
    refuse(works.error());
    return;
  }
  const NodeId node(hello.node());
  const NodeRecord* known = reactor_.state().FindNode(node);
  const uint64_t old_session = known == nullptr ? 0 : known->session;
  Actions actions;
  if (auto taken = reactor_.OnAgentHello(HelloOf(hello, input.received), input.session, now_, actions);
      !taken) {
    refuse(taken.error());
    return;
  }
  if (old_session != 0) {
    CloseSession(old_session, {.code = ErrorCode::kCancelled, .message = "the agent opened a newer stream"});
  }
  links_[input.session] = {input.link, node,
                           HealthOf(hello, input.received).clock_ahead.value_or(Duration::zero())};
  readings_[node].latest.clear();
  SendToSession(input.session, MakeWelcome(hello));
  Record(actions);
  done_.push_back([node, session = input.session, version = hello.version(), devices = hello.devices_size(),
                   runs = hello.runs_size()](const Status& status) {
    if (!status) return;
    spdlog::info("node={} session={} version={} devices={} runs={} msg=\"agent connected\"", node, session,
                 version, devices, runs);
  });
}

v1::ConnectResponse Engine::MakeWelcome(const v1::Hello& hello) {
  v1::ConnectResponse message;
  auto* welcome = message.mutable_welcome();
  const auto heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(settings_.core.heartbeat);
  welcome->set_heartbeat_ms(static_cast<uint32_t>(heartbeat.count()));
  welcome->set_server_version(settings_.version);
  welcome->set_cluster_id(cluster_id_);
  welcome->set_time_us(now_.wall.micros);
  welcome->set_most_clock_skew_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(settings_.core.most_skew).count());
  for (const auto& status : hello.runs()) {
    if (!status.cluster_id().empty() && status.cluster_id() != cluster_id_) continue;
    const RunKey run = RunOf(status.run());
    const auto events = OrFail(state_.EventPositions(run));
    std::set<uint32_t> ranks;
    for (const auto& [rank, sequence] : events) ranks.insert(rank);
    for (const auto& [rank, line] : OrFail(metrics_.LastLines(run))) ranks.insert(rank);
    for (const auto& rank : status.ranks()) ranks.insert(rank.rank());
    for (const auto& exit : status.exits()) ranks.insert(exit.rank());
    for (const uint32_t rank : ranks) {
      auto* position = welcome->add_positions();
      *position->mutable_run() = status.run();
      position->set_rank(rank);
      const auto sequence = events.find(rank);
      position->set_event_sequence(sequence == events.end() ? 0 : sequence->second);
      position->set_line_number(OrFail(log_store_.Append({run, rank}, {})));
    }
  }
  return message;
}

void Engine::OnMessage(const AgentInput& input, const NodeId& node) {
  const auto& message = input.message;
  Actions actions;
  // Shown at the next tick; only a node that was out of reach is news.
  if (reactor_.state().FindNode(node)->state != NodeState::kReady) view_changed_ = true;
  reactor_.OnHeard(node, now_);
  switch (message.message_case()) {
    case v1::ConnectRequest::kHeartbeat: {
      const auto& readings = message.heartbeat().readings();
      if (!readings.empty()) readings_[node].Take(readings, now_.steady);
      const Health health = HealthOf(message.heartbeat(), input.received);
      if (health.clock_ahead) links_.at(input.session).clock_ahead = *health.clock_ahead;
      reactor_.OnHealth(node, health, now_, actions);
      break;
    }
    case v1::ConnectRequest::kRunPrepared: {
      const auto& prepared = message.run_prepared();
      reactor_.OnRunPrepared(node, RunOf(prepared.run()), prepared.address(), prepared.port(),
                             prepared.error(), now_, actions);
      break;
    }
    case v1::ConnectRequest::kRunStatus:
      view_changed_ = true;
      reactor_.OnRunStatus(node, ReportOf(message.run_status()), now_, actions);
      break;
    case v1::ConnectRequest::kRunPulse:
      reactor_.OnRunPulse(node, RunOf(message.run_pulse().run()), PulsesOf(message.run_pulse()), now_);
      break;
    case v1::ConnectRequest::kTrainerEvents:
      OnTrainerEvents(input);
      break;
    case v1::ConnectRequest::kLogLines:
      OnLogLines(input);
      break;
    case v1::ConnectRequest::kMetricsPage:
      OnMetricsPage(input);
      break;
    default:
      break;  // a second Hello, or a message of a newer agent
  }
  Record(actions);
}

void Engine::OnTrainerEvents(const AgentInput& input) {
  const auto& message = input.message.trainer_events();
  if (message.events().empty()) return;
  const RunKey run = RunOf(message.run());
  const NodeId node = links_.at(input.session).node;
  uint64_t last = message.events(message.events_size() - 1).sequence();
  if (reactor_.AcceptsReportsOf(node, run, message.rank())) {
    reactor_.OnRelayed(run, now_);
    last = TakeEvents(run, message.rank(), node, message.events());
  } else {
    view_changed_ = true;  // it was counted
  }
  // Those of an older start are acknowledged too: they are refused for good, not until later.
  v1::ConnectResponse ack;
  *ack.mutable_events_ack()->mutable_run() = message.run();
  ack.mutable_events_ack()->set_rank(message.rank());
  ack.mutable_events_ack()->set_sequence(last);
  SendToSession(input.session, std::move(ack));
}

uint64_t Engine::TakeEvents(RunKey run, uint32_t rank, const NodeId& node,
                            const google::protobuf::RepeatedPtrField<v1::TrainerEvent>& events) {
  const uint64_t before = OrFail(state_.EventPosition(run, rank));
  uint64_t last = before;
  for (const auto& event : events) {
    if (event.sequence() <= last) continue;
    // The acknowledgement says from where to send again, unless the agent has said that they are lost.
    if (event.sequence() > last + 1 + MissingBefore(event)) break;
    last = event.sequence();
    OnTrainerEvent(run, rank, node, event);
  }
  if (last == before) return last;
  state_.SaveEventPosition(run, rank, last);
  NoteLate(run.job);
  return last;
}

/// 0 is said by who does not know, too. It may have been on its way for as long as imgd was away.
void Engine::NoteProgress(RunKey run, const v1::TrainerEvent& event) {
  constexpr double kMost = 10.0 * 365 * 24 * 3600;
  const double said = event.step().eta_seconds();
  if (!(said > 0 && said < kMost)) return;
  const auto left = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(said));
  const Duration age = AgeOf(event, now_.wall, ClockAhead(run));
  reactor_.OnTrainerProgress(run, std::max(left - age, Duration::zero()), now_);
}

Duration Engine::ClockAhead(RunKey run) const {
  const JobRecord* job = reactor_.state().FindJob(run.job);
  const Part* part = job == nullptr ? nullptr : PartOfRank(job->run, 0);
  const NodeRecord* node = part == nullptr ? nullptr : reactor_.state().FindNode(part->node);
  const auto connected = node == nullptr ? links_.end() : links_.find(node->session);
  return connected == links_.end() ? Duration::zero() : connected->second.clock_ahead;
}

void Engine::OnStep(RunKey run, uint32_t rank, const v1::TrainerEvent& event) {
  const auto& times = event.step().times();
  if (times.steps() > 0) {
    metrics_.NoteRankTimes(run, rank, event.step().step(), now_.steady,
                           {.own_seconds = times.input_seconds() + times.forward_seconds() +
                                           times.backward_seconds() + times.optimizer_seconds(),
                            .wait_seconds = times.communication_seconds(),
                            .steps = static_cast<double>(times.steps())});
  }
  // All else that other ranks than 0 say is the same.
  if (rank != 0) return;
  v1::StepMetrics step = event.step();
  AddBusyRatios(run.job, step);
  AppendMetric(run, rank, event.sequence(), EventKind::kStep, event.time_us(), step.SerializeAsString());
  NoteProgress(run, event);
}

/// As its nodes said last; what an agent that is away said is not of now.
void Engine::AddBusyRatios(JobId id, v1::StepMetrics& step) const {
  step.clear_devices();
  double least = 1;
  double most = 0;
  double sum = 0;
  int count = 0;
  for (const auto& part : reactor_.state().FindJob(id)->run.parts) {
    const auto readings = readings_.find(part.node);
    const NodeRecord* node = reactor_.state().FindNode(part.node);
    if (readings == readings_.end() || node == nullptr || !node->Connected()) continue;
    // In the order of the node's devices, which need not have all indexes.
    const auto& latest = readings->second.latest;
    for (size_t i = 0; i < std::min(node->devices.size(), latest.size()); ++i) {
      const uint32_t index = node->devices[i].index;
      const bool own = std::find(part.devices.begin(), part.devices.end(), index) != part.devices.end();
      if (!own || !WasRead(kBusyFigure, latest[i].error())) continue;
      const double busy = latest[i].busy_ratio();
      least = std::min(least, busy);
      most = std::max(most, busy);
      sum += busy;
      ++count;
    }
  }
  if (count == 0) return;
  step.mutable_devices()->set_busy_least_ratio(least);
  step.mutable_devices()->set_busy_mean_ratio(sum / count);
  step.mutable_devices()->set_busy_most_ratio(most);
}

/// Of the first rank on each node: its ranks have one program. What such a trainer says is taken all the
/// same.
void Engine::CheckTrainerVersion(RunKey run, uint32_t rank, const NodeId& node, const std::string& version) {
  const std::string why = WhyNotFit({"imgd", settings_.version}, {"imgtrain", OneLine(version)}, "trainers");
  if (why.empty()) return;
  const JobRecord* job = reactor_.state().FindJob(run.job);
  const auto begins = [&](const Part& part) { return part.node == node && part.first_rank == rank; };
  if (rank != 0 && (job == nullptr || std::none_of(job->run.parts.begin(), job->run.parts.end(), begins)))
    return;
  const std::string where = node.name().empty() ? "" : fmt::format(" on node {}", node);
  const std::string text =
      fmt::format("job {} is trained{} by another version: {}; what it reports may be misunderstood", run.job,
                  where, why);
  spdlog::warn("job={} generation={} msg=\"{}\"", run.job, run.generation, text);
  AppendDecision({.job = run.job,
                  .node = node,
                  .reason = {ReasonCode::kTrainerVersion, text},
                  .actor = "imgd",
                  .time = now_.wall});
}

void Engine::OnTrainerEvent(RunKey run, uint32_t rank, const NodeId& node, const v1::TrainerEvent& event) {
  const auto append = [&](EventKind kind, std::string payload) {
    AppendMetric(run, rank, event.sequence(), kind, event.time_us(), std::move(payload));
  };
  Actions actions;
  switch (event.event_case()) {
    case v1::TrainerEvent::kStarted: {
      v1::RankStarted started;
      started.set_rank(rank);
      *started.mutable_started() = event.started();
      started.set_node(node.name());
      append(EventKind::kRankStarted, started.SerializeAsString());
      CheckTrainerVersion(run, rank, node, event.started().version());
      reactor_.OnTrainerStarted(run, rank, now_, actions);
      break;
    }
    case v1::TrainerEvent::kStep:
      OnStep(run, rank, event);
      break;
    case v1::TrainerEvent::kEpoch:
      if (rank != 0) break;
      append(EventKind::kEpoch, event.epoch().SerializeAsString());
      reactor_.OnTrainerEpoch(run,
                              {.epoch = event.epoch().epoch(),
                               .top1 = event.epoch().val_top1(),
                               .top5 = event.epoch().val_top5(),
                               .loss = event.epoch().val_loss()},
                              now_, actions);
      break;
    case v1::TrainerEvent::kCheckpoint: {
      const auto& written = event.checkpoint();
      append(EventKind::kCheckpoint, written.SerializeAsString());
      reactor_.OnTrainerCheckpoint(run,
                                   {.path = written.path(),
                                    .step = written.step(),
                                    .generation = Generation(written.generation()),
                                    .size_bytes = written.size_bytes(),
                                    .manifest_sha256 = written.manifest_sha256()},
                                   now_, actions);
      break;
    }
    case v1::TrainerEvent::kFinished:
      reactor_.OnTrainerFinished(run, rank, now_, actions);
      break;
    case v1::TrainerEvent::kFailed: {
      const auto& failed = event.failed();
      reactor_.OnTrainerFailed(run,
                               {.rank = rank,
                                .message = failed.message(),
                                .bad_input = failed.bad_input(),
                                .collective_broken = failed.collective_broken(),
                                .match = log_matcher_->FindIn(failed.message(), HasGpu(run, rank))},
                               now_, actions);
      break;
    }
    case v1::TrainerEvent::kBadImage:
      append(EventKind::kBadImage, event.bad_image().SerializeAsString());
      break;
    case v1::TrainerEvent::kProfile:
      append(EventKind::kProfile, event.profile().SerializeAsString());
      break;
    case v1::TrainerEvent::kClasses:
      if (rank != 0) break;
      append(EventKind::kClasses, event.classes().SerializeAsString());
      break;
    case v1::TrainerEvent::kSamples:
      if (rank != 0) break;
      append(EventKind::kSamples, event.samples().SerializeAsString());
      break;
    case v1::TrainerEvent::kDatasetProgress:
      OnDatasetProgress(run.job, event.dataset_progress());
      break;
    case v1::TrainerEvent::kDatasetFacts:
      OnDatasetFacts(run.job, node, event.dataset_facts());
      break;
    case v1::TrainerEvent::kNote:
      OnTrainerNote(run, rank, event);
      break;
    case v1::TrainerEvent::kLost:
      spdlog::warn("job={} gen={} node={} rank={} msg=\"{} trainer events are lost: {}\"", run.job,
                   run.generation, node, rank, event.lost().count(), event.lost().reason());
      reactor_.OnTrainerEventsLost(node, run, rank, event.lost().count(), event.lost().reason(), now_,
                                   actions);
      break;
    default:
      break;  // of a newer trainer
  }
  Record(actions);
}

void Engine::OnLogLines(const AgentInput& input) {
  const auto& message = input.message.log_lines();
  if (message.lines().empty()) return;
  const RunKey run = RunOf(message.run());
  uint64_t last = message.lines(message.lines_size() - 1).line_number();
  // Lines of an older start are still that start's log; those of a rank that never was there have no place.
  if (OrFail(state_.RankWasOn(run, message.rank(), links_.at(input.session).node))) {
    std::vector<StoredLine> lines;
    for (const auto& line : message.lines()) {
      lines.push_back({line.line_number(), line.time_us(), line.is_stderr(), line.text()});
    }
    last = OrFail(log_store_.Append({run, message.rank()}, lines));
    new_logs_.insert(run.job);
    NoteLate(run.job);
    reactor_.OnRelayed(run, now_);
  }
  v1::ConnectResponse ack;
  *ack.mutable_logs_ack()->mutable_run() = message.run();
  ack.mutable_logs_ack()->set_rank(message.rank());
  ack.mutable_logs_ack()->set_line_number(last);
  SendToSession(input.session, std::move(ack));
}

}  // namespace imgd
