#include "server/rpc/convert.h"

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/engine/dataset_facts.h"

namespace imgd {
namespace {

static_assert(static_cast<int>(JobState::kCancelled) == v1::JOB_STATE_CANCELLED);
static_assert(static_cast<int>(JobState::kQueued) == v1::JOB_STATE_QUEUED);
static_assert(static_cast<int>(ReasonCode::kNoNodes) == v1::REASON_CODE_NO_NODES);
static_assert(static_cast<int>(ReasonCode::kRankStuck) == v1::REASON_CODE_RANK_STUCK);
static_assert(static_cast<int>(ReasonCode::kSilent) == v1::REASON_CODE_SILENT);
static_assert(static_cast<int>(ReasonCode::kPreempted) == v1::REASON_CODE_PREEMPTED);
static_assert(static_cast<int>(ReasonCode::kQuota) == v1::REASON_CODE_QUOTA);
static_assert(static_cast<int>(ReasonCode::kTimeLimit) == v1::REASON_CODE_TIME_LIMIT);
static_assert(static_cast<int>(ReasonCode::kAfterJob) == v1::REASON_CODE_AFTER_JOB);
static_assert(static_cast<int>(ReasonCode::kHalved) == v1::REASON_CODE_HALVED);
static_assert(static_cast<int>(AfterEnd::kFailed) == v1::AFTER_END_FAILED);
static_assert(static_cast<int>(ReasonCode::kPausedByUser) == v1::REASON_CODE_PAUSED_BY_USER);
static_assert(static_cast<int>(ReasonCode::kReturnedByUser) == v1::REASON_CODE_RETURNED_BY_USER);
static_assert(static_cast<int>(ReasonCode::kNodeForgotten) == v1::REASON_CODE_NODE_FORGOTTEN);
static_assert(static_cast<int>(ReasonCode::kResized) == v1::REASON_CODE_RESIZED);
static_assert(static_cast<int>(ReasonCode::kCollectiveBroken) == v1::REASON_CODE_COLLECTIVE_BROKEN);
static_assert(static_cast<int>(ReasonCode::kLogPattern) == v1::REASON_CODE_LOG_PATTERN);
static_assert(static_cast<int>(ReasonCode::kSpotNotice) == v1::REASON_CODE_SPOT_NOTICE);
static_assert(static_cast<int>(ReasonCode::kRestored) == v1::REASON_CODE_RESTORED);
static_assert(static_cast<int>(ReasonCode::kAdministered) == v1::REASON_CODE_ADMINISTERED);
static_assert(static_cast<int>(ReasonCode::kJoinRefused) == v1::REASON_CODE_JOIN_REFUSED);
static_assert(static_cast<int>(ReasonCode::kSessionBegun) == v1::REASON_CODE_SESSION_BEGUN);
static_assert(static_cast<int>(ReasonCode::kSessionEnded) == v1::REASON_CODE_SESSION_ENDED);
static_assert(static_cast<int>(ReasonCode::kAttached) == v1::REASON_CODE_ATTACHED);
static_assert(static_cast<int>(ReasonCode::kTrainerVersion) == v1::REASON_CODE_TRAINER_VERSION);
static_assert(static_cast<int>(ReasonCode::kSubmitted) == v1::REASON_CODE_SUBMITTED);
static_assert(static_cast<int>(ProblemKind::kSharedFolder) == v1::PROBLEM_KIND_SHARED_FOLDER);
static_assert(static_cast<int>(NodeState::kLost) == v1::NODE_STATE_LOST);
static_assert(static_cast<int>(EventKind::kStateChange) == v1::JobEvent::kStateChangeFieldNumber);
static_assert(static_cast<int>(EventKind::kStep) == v1::JobEvent::kStepFieldNumber);
static_assert(static_cast<int>(EventKind::kEpoch) == v1::JobEvent::kEpochFieldNumber);
static_assert(static_cast<int>(EventKind::kCheckpoint) == v1::JobEvent::kCheckpointFieldNumber);
static_assert(static_cast<int>(EventKind::kRankExit) == v1::JobEvent::kRankExitFieldNumber);
static_assert(static_cast<int>(EventKind::kRankStarted) == v1::JobEvent::kRankStartedFieldNumber);
static_assert(static_cast<int>(EventKind::kBadImage) == v1::JobEvent::kBadImageFieldNumber);
static_assert(static_cast<int>(EventKind::kProfile) == v1::JobEvent::kProfileFieldNumber);
static_assert(static_cast<int>(EventKind::kClasses) == v1::JobEvent::kClassesFieldNumber);
static_assert(static_cast<int>(EventKind::kSamples) == v1::JobEvent::kSamplesFieldNumber);

/// Of a queued job: what happened to it, not what it waits for.
bool GivesReason(ReasonCode code) {
  switch (code) {
    case ReasonCode::kSubmitted:
    case ReasonCode::kWaitsForDevices:
    case ReasonCode::kWaitsBehindJob:
    case ReasonCode::kNeverFits:
    case ReasonCode::kNoNodes:
    case ReasonCode::kQuota:
      return false;
    default:
      return true;
  }
}

/// What only the cluster as it is now can say about a queued job.
void FillWait(const JobRecord& job, const ClusterView& view, v1::Job& out) {
  const auto place = PlaceIn(view.queue, view.ranking.KeyOf(job));
  if (!place) return;
  const QueuedJob& queued = view.queue[*place];
  out.set_queue_position(static_cast<uint32_t>(*place + 1));
  if (queued.code == ReasonCode::kBackoff) return;
  const std::string wait = ExplainWait(view.snapshot, WaitingAt(view.queue, *place));
  // One that gave its devices back, and that no plan has looked at since, says why it did.
  const bool told = queued.code == job.reason.code && GivesReason(job.reason.code);
  out.set_reason(static_cast<v1::ReasonCode>(queued.code));
  out.set_reason_text(told ? fmt::format("{}; {}", job.reason.text, wait) : wait);
}

void FillRun(const JobRecord& job, v1::Job& out) {
  for (const auto& part : job.run.parts) {
    auto* placement = out.add_placements();
    placement->set_node(part.node.name());
    placement->set_first_rank(part.first_rank);
    placement->set_ranks(part.Ranks());
    placement->mutable_devices()->Add(part.devices.begin(), part.devices.end());
  }
  for (const auto& exit : job.run.exits) {
    auto* rank_exit = out.add_rank_exits();
    rank_exit->set_rank(exit.rank);
    rank_exit->set_exit_code(exit.exit_code);
    rank_exit->set_signal(exit.signal);
    rank_exit->set_last_error_line(exit.last_error_line);
    rank_exit->set_pid(exit.pid);
    rank_exit->set_told(exit.told);
    rank_exit->set_program(!job.Trains());
    if (exit.match) *rank_exit->mutable_match() = ToProto(*exit.match);
  }
}

/// How far it came is left; how fast it was, and its ranks, say nothing of another start.
void ClearSpeed(v1::StepMetrics& step) {
  step.clear_rank_images_per_second();
  step.clear_images_per_second();
  step.clear_input_wait_ratio();
  step.clear_eta_seconds();
  step.clear_loader();
  step.clear_times();
  step.clear_ranks();
  step.clear_devices();
}

v1::Device DeviceOf(const NodeRecord& node, size_t index, const std::vector<v1::DeviceReading>* readings) {
  const Device& device = node.devices[index];
  v1::Device out;
  out.set_index(device.index);
  out.set_model(device.model);
  out.set_uuid(device.uuid);
  out.set_memory_bytes(device.memory_bytes);
  out.set_job_id(node.holders[index].value());
  if (const auto cluster = node.ForeignHolder(device.index)) {
    out.set_held_text(fmt::format("held by a run of another cluster ({})", *cluster));
  } else if (node.holders[index] == JobId() && !node.stale.empty()) {
    const RunKey& run = *node.stale.begin();
    out.set_held_text(
        fmt::format("free once job {} of generation {} has ended there", run.job, run.generation));
  }
  if (readings != nullptr && index < readings->size()) *out.mutable_reading() = (*readings)[index];
  return out;
}

}  // namespace

v1::Job ToProto(const JobRecord& job, const ClusterView& view) {
  v1::Job out;
  out.set_id(job.id.value());
  out.set_name(job.name);
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_reason(static_cast<v1::ReasonCode>(job.reason.code));
  const std::string silent = ExplainSilent(job, view.nodes);
  out.set_reason_text(silent.empty() ? job.reason.text : fmt::format("{}; {}", job.reason.text, silent));
  out.set_generation(job.generation.value());
  out.set_priority(job.priority);
  out.set_nodes(job.nodes);
  out.set_max_nodes(job.MostNodes());
  if (job.generation != Generation()) out.set_nodes_now(job.NodesNow());
  if (job.IsElastic()) out.set_resize_interval_ms(job.resize_interval_ms);
  out.set_ranks_per_node(job.ranks_per_node);
  out.set_kind(static_cast<v1::JobKind>(job.kind));
  out.set_per_node(job.per_node);
  out.set_submitted_us(job.submitted.micros);
  out.set_started_us(job.started.micros);
  out.set_ended_us(job.ended.micros);
  out.set_restarts(job.restarts);
  out.set_owner(job.owner);
  out.set_project(job.project);
  out.set_checkpoint_dir(job.checkpoint_dir);
  out.set_time_limit_ms(job.time_limit_ms);
  out.set_held_ms(job.held_ms);
  out.set_device_hours(job.device_seconds / 3600);
  out.set_cost(job.cost);
  out.set_rerun_of(job.rerun_of.value());
  FillAfter(job.after, out);
  out.set_not_before_us(job.not_before_wall.micros);
  out.set_sweep_id(job.sweep.value());
  FillSettings(job.sweep_settings, *out.mutable_sweep_settings());
  FillRun(job, out);
  if (!job.checkpoints.empty()) {
    const auto& newest = job.checkpoints.front();
    auto* checkpoint = out.mutable_last_checkpoint();
    checkpoint->set_path(newest.path);
    checkpoint->set_step(newest.step);
    checkpoint->set_generation(newest.generation.value());
    checkpoint->set_size_bytes(newest.size_bytes);
    checkpoint->set_manifest_sha256(newest.manifest_sha256);
  }
  if (job.state == JobState::kQueued) FillWait(job, view, out);
  if (job.by_hand) {
    auto* external = out.mutable_external();
    for (const auto& host : job.by_hand->hosts) external->add_hosts(host);
    external->set_last_heard_us(job.by_hand->last_heard.micros);
    external->set_token(job.by_hand->token);
  }
  return out;
}

void AddHeldSince(const JobRecord& job, const ClusterView& view, WallTime now, v1::Job& out) {
  if (!job.HoldsDevices()) return;
  const WallTime from = job.run.charged.micros != 0 ? job.run.charged : job.started;
  const double hours = static_cast<double>(std::max<int64_t>(now.micros - from.micros, 0)) / 3.6e9;
  const HeldDevices held = HeldBy(job, [&view](const NodeId& id) -> const NodeRecord* {
    const auto node =
        std::lower_bound(view.nodes.begin(), view.nodes.end(), id,
                         [](const NodeRecord& one, const NodeId& other) { return one.id < other; });
    return node != view.nodes.end() && node->id == id ? &*node : nullptr;
  });
  out.set_device_hours(out.device_hours() + hours * held.devices);
  out.set_cost(out.cost() + hours * held.price_per_hour);
}

void FillAfter(const std::vector<Dependency>& after, v1::Job& out) {
  for (const auto& one : after) {
    auto* dependency = out.add_after();
    dependency->set_job_id(one.job.value());
    dependency->set_job_name(one.name);
    dependency->set_when(static_cast<v1::AfterEnd>(one.when));
    if (one.ended) dependency->set_ended(static_cast<v1::JobState>(*one.ended));
  }
}

void FillSettings(const std::vector<SweepSetting>& settings,
                  google::protobuf::RepeatedPtrField<v1::SweepSetting>& out) {
  for (const auto& [name, value] : settings) {
    auto* setting = out.Add();
    setting->set_name(name);
    setting->set_value(value);
  }
}

void FillSweep(const SweepRecord& sweep, v1::Sweep& out) {
  out.set_id(sweep.id.value());
  out.set_name(sweep.name);
  out.set_owner(sweep.owner);
  out.set_members(sweep.members);
  out.set_max_running(sweep.max_running);
  out.set_submitted_us(sweep.submitted.micros);
  if (!sweep.halving) return;
  auto* halving = out.mutable_halving();
  halving->set_metric(std::string(NameOf(sweep.halving->metric)));
  halving->set_max(sweep.halving->max);
  halving->set_factor(sweep.halving->factor);
  for (size_t i = 0; i < sweep.halving->rungs.size(); ++i) {
    auto* rung = halving->add_rungs();
    rung->set_epoch(sweep.halving->rungs[i]);
    rung->set_kept(sweep.halving->Kept(sweep.members, i));
    for (const auto& [job, value] : sweep.rungs[i]) (*rung->mutable_results())[job.value()] = value;
  }
}

Result<v1::Job> FullJob(const JobRow& row, const ClusterView& view, Reader& reader) {
  v1::Job out = ToProto(row.job, view);
  if (row.yaml) out.set_job_yaml(*row.yaml);
  IMGD_ASSIGN(const auto step, reader.Latest(row.job.id, EventKind::kStep));
  if (step) {
    out.mutable_last_step()->ParseFromString(step->payload);
    if (step->generation != row.job.generation) ClearSpeed(*out.mutable_last_step());
  }
  IMGD_ASSIGN(const auto epoch, reader.Latest(row.job.id, EventKind::kEpoch));
  if (epoch) out.mutable_last_epoch()->ParseFromString(epoch->payload);
  if (out.has_last_checkpoint()) {
    // How long it took is in its report alone.
    IMGD_ASSIGN(const auto reported, reader.Latest(row.job.id, EventKind::kCheckpoint));
    v1::CheckpointWritten written;
    if (reported && written.ParseFromString(reported->payload) &&
        written.path() == out.last_checkpoint().path())
      out.mutable_last_checkpoint()->set_write_seconds(written.write_seconds());
  }
  IMGD_ASSIGN(const auto number, reader.LastEventNumber(row.job.id));
  out.set_last_event_number(number);
  return out;
}

v1::JobEvent ToProto(const StoredEvent& event) {
  v1::JobEvent out;
  out.set_number(event.number);
  out.set_time_us(event.time_us);
  out.set_generation(event.generation.value());
  switch (event.kind) {
    case EventKind::kStateChange: {
      auto* change = out.mutable_state_change();
      change->set_from(static_cast<v1::JobState>(event.from));
      change->set_to(static_cast<v1::JobState>(event.to));
      change->set_reason(static_cast<v1::ReasonCode>(event.reason));
      change->set_text(event.text);
      change->set_actor(event.actor);
      break;
    }
    case EventKind::kStep:
      out.mutable_step()->ParseFromString(event.payload);
      break;
    case EventKind::kEpoch:
      out.mutable_epoch()->ParseFromString(event.payload);
      break;
    case EventKind::kCheckpoint:
      out.mutable_checkpoint()->ParseFromString(event.payload);
      break;
    case EventKind::kRankExit:
      out.mutable_rank_exit()->ParseFromString(event.payload);
      break;
    case EventKind::kRankStarted:
      out.mutable_rank_started()->ParseFromString(event.payload);
      break;
    case EventKind::kBadImage:
      out.mutable_bad_image()->ParseFromString(event.payload);
      break;
    case EventKind::kProfile:
      out.mutable_profile()->ParseFromString(event.payload);
      break;
    case EventKind::kClasses:
      out.mutable_classes()->ParseFromString(event.payload);
      break;
    case EventKind::kSamples:
      out.mutable_samples()->ParseFromString(event.payload);
      for (auto& image : *out.mutable_samples()->mutable_images()) image.clear_picture();
      break;
  }
  return out;
}

v1::Node ToProto(const NodeRecord& node, const ClusterView& view) {
  v1::Node out;
  out.set_name(node.id.name());
  out.set_state(static_cast<v1::NodeState>(node.state));
  out.set_agent_version(node.agent_version);
  out.set_address(node.address);
  out.set_last_heartbeat_us(node.last_heartbeat.micros);
  out.set_joined_us(node.joined.micros);
  out.set_reason_text(ExplainNode(node));
  out.set_disconnected(node.state == NodeState::kReady && !node.Connected());
  for (const auto& [name, value] : node.labels) (*out.mutable_labels())[name] = value;
  out.set_price_per_hour(node.price_per_hour);
  if (node.set_aside) {
    auto* aside = out.mutable_set_aside();
    aside->set_drain(node.set_aside->drain);
    aside->set_reason(node.set_aside->reason);
    aside->set_actor(node.set_aside->actor);
    aside->set_since_us(node.set_aside->since.micros);
    aside->set_empty(node.IsEmpty());
    aside->set_by_imgd(node.set_aside->by != AsideBy::kUser);
  }
  for (const auto& [kind, text] : node.problems) {
    auto* problem = out.add_problems();
    problem->set_kind(static_cast<v1::ProblemKind>(kind));
    problem->set_text(text);
  }
  if (node.notice) {
    out.mutable_notice()->set_at_us(node.notice->at.micros);
    out.mutable_notice()->set_action(node.notice->action);
  }
  for (const auto& strike : node.strikes) out.add_struck_by(strike.job.value());
  const auto known = view.readings.find(node.id);
  for (size_t i = 0; i < node.devices.size(); ++i) {
    *out.add_devices() = DeviceOf(node, i, known == view.readings.end() ? nullptr : &known->second.latest);
  }
  return out;
}

void AddRecentBusy(const ClusterView& view, v1::Node& node) {
  const auto known = view.readings.find(NodeId(node.name()));
  if (known == view.readings.end()) return;
  const auto means = known->second.busy.Means(view.snapshot.now);
  node.mutable_recent_busy_ratios()->Assign(means.begin(), means.end());
}

Result<v1::Node> NodeOf(const std::string& name, const ClusterView& view) {
  for (const auto& node : view.nodes) {
    if (node.id.name() == name) return ToProto(node, view);
  }
  return Fail(ErrorCode::kNotFound, "there is no node {}", name);
}

void FillNodes(const ClusterView& view, v1::ListNodesResponse& out) {
  out.set_warning(view.trouble);
  for (const auto& node : view.nodes) *out.add_nodes() = ToProto(node, view);
}

v1::Dataset ToProto(const DatasetRecord& set) {
  v1::Dataset out;
  out.set_name(set.name);
  out.set_address(set.address);
  out.set_images(set.images);
  out.set_classes(set.classes);
  out.set_owner(set.owner);
  out.set_registered_us(set.registered.micros);
  out.set_made_by(set.made_by.value());
  if (!set.progress.empty()) *out.mutable_progress() = ProgressOf(set);
  out.set_verified_us(set.verified.micros);
  out.set_broken(set.broken);
  out.set_described_us(set.described.micros);
  return out;
}

v1::Event ToProto(const StoredDecision& decision) {
  v1::Event out;
  out.set_number(decision.number);
  out.set_time_us(decision.time_us);
  out.set_actor(decision.actor);
  out.set_reason(static_cast<v1::ReasonCode>(decision.reason));
  out.set_text(decision.text);
  out.set_job_id(decision.job.value());
  out.set_generation(decision.generation.value());
  out.set_from(static_cast<v1::JobState>(decision.from));
  out.set_to(static_cast<v1::JobState>(decision.to));
  out.set_node(decision.node);
  return out;
}

v1::NodeRun ToProto(const NodeRunRow& row) {
  v1::NodeRun out;
  out.set_job_id(row.run.job.value());
  out.set_job_name(row.job_name);
  out.set_generation(row.run.generation.value());
  out.set_first_rank(row.first_rank);
  out.set_ranks(row.ranks);
  out.set_started_us(row.started_us);
  out.set_ended_us(row.ended_us);
  out.set_ended_text(row.ended_text);
  return out;
}

}  // namespace imgd
