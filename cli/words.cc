#include "cli/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "cli/format.h"
#include "common/clock.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

// Exit codes of a trainer that say more than that it failed (docs/exit-codes.md).
constexpr int kCollectiveBroke = 10;
constexpr int kStoppedAsAsked = 11;
// A run that waits for its data for more than such a share of the time is slowed down by them.
constexpr double kSlowLoader = 0.05;
// A rank whose own work takes so many times the mean holds the others up.
constexpr double kStraggler = 1.1;

std::string WithoutPrefix(std::string name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

std::string StateChangeText(const v1::StateChange& change) {
  // A job that goes on waiting for another reason stays in its state.
  std::string text = change.from() == v1::JOB_STATE_UNSPECIFIED || change.from() == change.to()
                         ? StateName(change.to())
                         : fmt::format("{} -> {}", StateName(change.from()), StateName(change.to()));
  if (!change.text().empty()) text += fmt::format(": {}", change.text());
  if (!change.actor().empty()) text += fmt::format(" ({})", change.actor());
  return text;
}

std::string RankStartedText(const v1::RankStarted& rank) {
  const auto& started = rank.started();
  std::string text = fmt::format("rank {} of {} trains", rank.rank(), started.world_size());
  if (!rank.node().empty()) text += fmt::format(" on {}", rank.node());
  if (!started.device().empty()) text += fmt::format(", {}", started.device());
  text += fmt::format(", pid {}", started.pid());
  if (!started.resumed_from().empty()) {
    text += fmt::format(", goes on from step {} ({})", started.start_step(), started.resumed_from());
  }
  if (started.has_trial()) {
    const auto& trial = started.trial();
    text += fmt::format(", all-reduce of {} across {} node{}: {:.2f} GB/s", HumanBytes(trial.bytes()),
                        trial.nodes(), trial.nodes() == 1 ? "" : "s", trial.bytes_per_second() / 1e9);
  }
  return text;
}

std::string StepText(const v1::StepMetrics& step) {
  std::string text = fmt::format("step {}/{}  epoch {:.2f}  {}", step.step(), step.total_steps(),
                                 step.epoch(), TrainingText(step));
  const std::string left = TimeLeftText(step);
  if (step.step() < step.total_steps() && !left.empty()) text += fmt::format("  eta {}", left);
  return text;
}

std::string EpochText(const v1::EpochMetrics& epoch) {
  return fmt::format("epoch {}/{} validated: {}, loss {} ({} in {})", epoch.epoch(), epoch.total_epochs(),
                     AccuracyText(epoch), HumanLoss(epoch.val_loss()), Count(epoch.val_images(), "image"),
                     HumanDuration(epoch.val_seconds()));
}

uint32_t RanksOnNode(const v1::Job& job) { return job.per_node() ? 1 : job.ranks_per_node(); }

}  // namespace

std::string StateName(v1::JobState state) { return WithoutPrefix(v1::JobState_Name(state), "JOB_STATE_"); }

Result<v1::JobState> ParseState(const std::string& name) {
  std::string upper;
  for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  v1::JobState state{};
  if (upper != "UNSPECIFIED" && v1::JobState_Parse("JOB_STATE_" + upper, &state)) return state;
  std::vector<std::string> known;
  for (int i = v1::JobState_MIN + 1; i <= v1::JobState_MAX; ++i) {
    known.push_back(StateName(static_cast<v1::JobState>(i)));
  }
  const auto nearest = NearestWord(upper, known);
  return Fail(ErrorCode::kInvalidArgument, "found '{}'{}; allowed: {}", name,
              nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : "", fmt::join(known, ", "));
}

std::string ReasonName(v1::ReasonCode reason) {
  if (reason == v1::REASON_CODE_UNSPECIFIED) return "";
  return WithoutPrefix(v1::ReasonCode_Name(reason), "REASON_CODE_");
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_COMPLETED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

Style StyleOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_STARTING:
      return Style::kBusy;
    case v1::JOB_STATE_COMPLETED:
      return Style::kGood;
    case v1::JOB_STATE_FAILED:
      return Style::kBad;
    case v1::JOB_STATE_CANCELLED:
      return Style::kDim;
    default:
      return Style::kWarn;
  }
}

int ExitCodeOfState(v1::JobState state) {
  if (state == v1::JOB_STATE_FAILED) return 6;
  if (state == v1::JOB_STATE_CANCELLED) return 7;
  return 0;
}

bool HoldsNodes(v1::JobState state) {
  return state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_STARTING ||
         state == v1::JOB_STATE_PREEMPTING;
}

bool HoldsNodes(const v1::Job& job) { return HoldsNodes(job.state()); }

std::string JobTitle(const v1::Job& job) {
  return fmt::format("job {} ({})", job.id(), Printable(job.name()));
}

std::string GangText(const v1::Job& job) {
  const std::string ranks =
      job.per_node() ? fmt::format("with one process and {} each", Count(job.ranks_per_node(), "device"))
                     : fmt::format("with {} each", Count(job.ranks_per_node(), "rank"));
  if (job.max_nodes() <= job.nodes()) return fmt::format("{} {}", Count(job.nodes(), "node"), ranks);
  const std::string now = job.nodes_now() == 0 ? ""
                          : HoldsNodes(job)    ? fmt::format("; {} now", Count(job.nodes_now(), "node"))
                                               : fmt::format("; {} before", Count(job.nodes_now(), "node"));
  return fmt::format("{} to {} nodes {}{}", job.nodes(), job.max_nodes(), ranks, now);
}

std::string NodesText(const v1::Job& job) {
  if (job.max_nodes() <= job.nodes()) return std::to_string(job.nodes());
  const std::string range = fmt::format("{}-{}", job.nodes(), job.max_nodes());
  return job.nodes_now() == 0 ? range : fmt::format("{} ({})", job.nodes_now(), range);
}

bool Trains(const v1::Job& job) {
  return job.kind() == v1::JOB_KIND_TRAINING || job.kind() == v1::JOB_KIND_UNSPECIFIED;
}

std::string KindText(v1::JobKind kind) {
  if (kind == v1::JOB_KIND_COMMAND) return "command";
  return kind == v1::JOB_KIND_CONVERSION ? "conversion" : "training";
}

uint32_t RanksOn(const v1::Placement& placement) {
  return placement.ranks() > 0 ? placement.ranks() : static_cast<uint32_t>(placement.devices_size());
}

uint32_t RanksNow(const v1::Job& job) {
  return (job.nodes_now() > 0 ? job.nodes_now() : job.nodes()) * RanksOnNode(job);
}

uint32_t MostRanks(const v1::Job& job) { return std::max(job.nodes(), job.max_nodes()) * RanksOnNode(job); }

std::string ByHandText(const v1::Job& job) {
  if (!job.has_external()) return "";
  const auto& hosts = job.external().hosts();
  std::string text = "started by hand";
  if (!hosts.empty()) text += fmt::format(" on {}", Printable(hosts[0]));
  if (hosts.size() > 1)
    text += fmt::format(" and {}", Count(static_cast<uint64_t>(hosts.size()) - 1, "other host"));
  return text;
}

std::string AboutText(double seconds) {
  const auto minutes = static_cast<int64_t>(std::min(std::round(seconds / 60), 1e12));
  if (seconds < 120) return fmt::format("{:.0f} s", std::max(seconds, 0.0));
  if (minutes < 60) return fmt::format("{} min", minutes);
  if (minutes < 48 * 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  return fmt::format("{} days", (minutes + 12 * 60) / (24 * 60));
}

std::string ExpectedStartText(const v1::Job& job, int64_t now_us) {
  if (job.expected_start_us() == 0) return "";
  const double seconds = static_cast<double>(job.expected_start_us() - now_us) / 1e6;
  if (seconds < 1) return "now";
  return fmt::format("in about {}, at {}", AboutText(seconds), LocalTime(job.expected_start_us()));
}

std::string AfterText(const google::protobuf::RepeatedPtrField<v1::Dependency>& after) {
  std::string text;
  for (const auto& one : after) {
    const std::string_view verb = one.when() == v1::AFTER_END_ANY      ? "to end"
                                  : one.when() == v1::AFTER_END_FAILED ? "to fail"
                                                                       : "to complete";
    text += fmt::format("{}job {} ({}) {}", text.empty() ? "" : ", ", one.job_id(), Printable(one.job_name()),
                        verb);
    if (one.ended() != v1::JOB_STATE_UNSPECIFIED) text += fmt::format(": it is {}", StateName(one.ended()));
  }
  return text;
}

std::string SweepSettingsText(const google::protobuf::RepeatedPtrField<v1::SweepSetting>& settings) {
  std::string text;
  for (const auto& setting : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", Printable(setting.name()),
                        Printable(setting.value()));
  }
  return text;
}

namespace {

/// A completed job that was stopped as one of the worst of its sweep, or by early_stop: the end of a run that
/// goes on to its last step is always validated. What a run by hand reports nobody can rely on.
bool EndedEarly(const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_COMPLETED || job.has_external()) return false;
  if (job.reason() == v1::REASON_CODE_HALVED) return true;
  const uint64_t validated = job.last_epoch().step();
  return validated > 0 && validated < job.last_step().total_steps();
}

/// The figures come at intervals: one that trained to the end has done all its steps, and one that ended
/// early came as far as it was validated.
uint64_t StepsDone(const v1::Job& job) {
  const auto& step = job.last_step();
  if (EndedEarly(job)) return std::max(step.step(), job.last_epoch().step());
  return job.state() == v1::JOB_STATE_COMPLETED ? step.total_steps() : step.step();
}

}  // namespace

std::optional<double> DoneRatio(const v1::Job& job) {
  const uint64_t total = job.last_step().total_steps();
  if (total > 0) return std::min(1.0, static_cast<double>(StepsDone(job)) / static_cast<double>(total));
  if (job.state() == v1::JOB_STATE_COMPLETED && !EndedEarly(job)) return 1;
  return std::nullopt;
}

std::string ProgressText(const v1::Job& job) {
  if (job.has_last_step()) {
    const std::string steps = fmt::format("{}/{}", StepsDone(job), job.last_step().total_steps());
    const auto ratio = DoneRatio(job);
    return ratio ? fmt::format("{} {} %", steps, static_cast<int>(*ratio * 100)) : steps;
  }
  if (job.has_last_epoch()) {
    return fmt::format("epoch {}/{}", job.last_epoch().epoch(), job.last_epoch().total_epochs());
  }
  return "";
}

std::string SpeedText(const v1::StepMetrics& step) {
  return step.images_per_second() == 0 ? "" : HumanRate(step.images_per_second());
}

std::string TrainingText(const v1::StepMetrics& step) {
  const std::string speed = SpeedText(step);
  return fmt::format("{}{}loss {}  top-1 {}", speed, speed.empty() ? "" : " images/s  ",
                     HumanLoss(step.loss()), HumanPercent(step.top1()));
}

std::string TimeLeftText(const v1::StepMetrics& step) {
  const double left = step.eta_seconds();
  return left > 0 && std::isfinite(left) ? HumanDuration(left) : "";
}

std::string LoaderText(const v1::LoaderMetrics& loader) {
  if (loader.interval_seconds() <= 0) return "";
  const double wait = std::clamp(loader.wait_seconds() / loader.interval_seconds(), 0.0, 1.0);
  std::string text =
      wait < kSlowLoader
          ? fmt::format("keeps up: training waits for data {} of the time", HumanPercent(wait))
          : fmt::format("too slow: training waits for data {} of the time", HumanPercent(wait));
  const double time = loader.interval_seconds() * loader.workers();
  if (time > 0) {
    const double busy = std::clamp(1 - loader.idle_seconds() / time, 0.0, 1.0);
    text += fmt::format("; {} {} busy", Count(loader.workers(), "thread"), HumanPercent(busy));
  }
  if (loader.images() > 0) {
    const auto each = [&](double seconds) { return 1000 * seconds / static_cast<double>(loader.images()); };
    text += fmt::format("; an image: read {:.1f} ms, decode {:.1f} ms, resize and augment {:.1f} ms",
                        each(loader.read_seconds()), each(loader.decode_seconds()),
                        each(loader.augment_seconds()));
    text += fmt::format("; {}/s", HumanBytes(static_cast<uint64_t>(static_cast<double>(loader.bytes()) /
                                                                   loader.interval_seconds())));
    if (loader.images_left_to_cpu() > 0) {
      text += fmt::format("; nvJPEG left {} of {} to the CPU", loader.images_left_to_cpu(),
                          Count(loader.images(), "image"));
    }
  }
  return text;
}

std::string TimesText(const v1::StepMetrics& step) {
  const auto& times = step.times();
  const double all = step.loader().interval_seconds();
  if (times.steps() == 0 || all <= 0) return "";
  double named = 0;
  const auto share = [&](std::string_view name, double seconds) {
    named += seconds;
    return fmt::format(" {} {},", name, HumanPercent(std::clamp(seconds / all, 0.0, 1.0)));
  };
  std::string text = fmt::format("{} a step:", HumanMilliseconds(all / times.steps()));
  text += share("input", times.input_seconds()) + share("forward", times.forward_seconds()) +
          share("backward", times.backward_seconds()) +
          share("communication", times.communication_seconds()) +
          share("optimiser", times.optimizer_seconds());
  text += fmt::format(" other {}", HumanPercent(std::clamp(1 - named / all, 0.0, 1.0)));
  if (times.all_reduce_seconds() > 0) {
    text += fmt::format("; the all-reduce takes {}, {} of it behind the backward pass",
                        HumanMilliseconds(times.all_reduce_seconds()),
                        HumanPercent(times.all_reduce_hidden_ratio()));
  }
  return text;
}

std::string RankSpreadText(const v1::RankSpread& ranks) {
  if (ranks.ranks() < 2 || ranks.own_mean_seconds() <= 0) return "";
  const double ratio = ranks.own_most_seconds() / ranks.own_mean_seconds();
  std::string text = ratio < kStraggler
                         ? fmt::format("alike: {} to {} a step of their own (rank {} the slowest)",
                                       HumanMilliseconds(ranks.own_least_seconds()),
                                       HumanMilliseconds(ranks.own_most_seconds()), ranks.slowest_rank())
                         : fmt::format("rank {} is slow: {} a step of its own where the mean is {}",
                                       ranks.slowest_rank(), HumanMilliseconds(ranks.own_most_seconds()),
                                       HumanMilliseconds(ranks.own_mean_seconds()));
  if (ratio >= kStraggler && ranks.slowest_input_seconds() > ranks.own_most_seconds() / 2) {
    text += ", most of it waiting for input";
  }
  return text + fmt::format("; they wait {} to {} for one another",
                            HumanMilliseconds(ranks.wait_least_seconds()),
                            HumanMilliseconds(ranks.wait_most_seconds()));
}

std::string AccuracyText(const v1::EpochMetrics& epoch) {
  return fmt::format("top-1 {}, top-5 {}", HumanPercent(epoch.val_top1()), HumanPercent(epoch.val_top5()));
}

bool EndedWell(const v1::RankExit& exit) {
  const bool as_asked = exit.exit_code() == kStoppedAsAsked && !exit.program();
  return exit.signal() == 0 && (exit.exit_code() == 0 || as_asked);
}

std::string RankExitText(const v1::RankExit& exit) {
  std::string text = exit.signal() != 0 ? fmt::format("killed by {}", SignalName(exit.signal()))
                                        : fmt::format("exit code {}", exit.exit_code());
  if (exit.signal() == 0 && !exit.program()) {
    if (exit.exit_code() == kCollectiveBroke) text += ", a collective broke";
    if (exit.exit_code() == kStoppedAsAsked) text += ", stopped as asked";
  }
  // What a rank wrote to standard error is no cause where there is nothing to explain.
  if (!exit.last_error_line().empty() && !EndedWell(exit))
    text += fmt::format(": {}", exit.last_error_line());
  return text;
}

std::string NodeOfRank(const v1::Job& job, uint32_t rank) {
  for (const auto& placement : job.placements()) {
    if (rank >= placement.first_rank() && rank < placement.first_rank() + RanksOn(placement))
      return placement.node();
  }
  return "";
}

std::string EventText(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kStateChange:
      return StateChangeText(event.state_change());
    case v1::JobEvent::kStep:
      return StepText(event.step());
    case v1::JobEvent::kEpoch:
      return EpochText(event.epoch());
    case v1::JobEvent::kCheckpoint:
      return fmt::format("checkpoint at step {}, {}: {}", event.checkpoint().step(),
                         HumanBytes(event.checkpoint().size_bytes()), event.checkpoint().path());
    case v1::JobEvent::kRankExit:
      return fmt::format("rank {} ended, {}", event.rank_exit().rank(), RankExitText(event.rank_exit()));
    case v1::JobEvent::kRankStarted:
      return RankStartedText(event.rank_started());
    case v1::JobEvent::kBadImage:
      return fmt::format("image {} can't be decoded: {} ({} so far)", event.bad_image().path(),
                         event.bad_image().error(), event.bad_image().count());
    case v1::JobEvent::kProfile:
      return fmt::format("rank {} was profiled up to step {}: {}", event.profile().rank(),
                         event.profile().step(), event.profile().trace());
    case v1::JobEvent::kClasses:
      return fmt::format("figures of {} classes at step {}", event.classes().class_count(),
                         event.classes().step());
    case v1::JobEvent::kSamples:
      return fmt::format("{} images with the model's answers at step {}", event.samples().images_size(),
                         event.samples().step());
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  return "an event that this imgcli does not know";
}

Style StyleOf(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kStateChange:
      return StyleOf(event.state_change().to());
    case v1::JobEvent::kRankExit:
      return EndedWell(event.rank_exit()) ? Style::kPlain : Style::kBad;
    case v1::JobEvent::kBadImage:
      return Style::kWarn;
    case v1::JobEvent::kCheckpoint:
    case v1::JobEvent::kRankStarted:
      return Style::kDim;
    default:
      return Style::kPlain;
  }
}

void ApplyEvent(const v1::JobEvent& event, v1::Job& job) {
  job.set_last_event_number(std::max(job.last_event_number(), event.number()));
  job.set_generation(std::max(job.generation(), event.generation()));
  switch (event.event_case()) {
    case v1::JobEvent::kStateChange:
      if (HoldsNodes(job) && !HoldsNodes(event.state_change().to()))
        job.set_held_ms(static_cast<int64_t>(RanSeconds(job, event.time_us()) * 1e3));
      job.set_state(event.state_change().to());
      job.set_reason(event.state_change().reason());
      job.set_reason_text(event.state_change().text());
      if (IsFinal(job.state())) job.set_ended_us(event.time_us());
      if (job.state() == v1::JOB_STATE_STARTING) job.set_started_us(event.time_us());
      break;
    case v1::JobEvent::kStep:
      *job.mutable_last_step() = event.step();
      break;
    case v1::JobEvent::kEpoch:
      *job.mutable_last_epoch() = event.epoch();
      break;
    case v1::JobEvent::kCheckpoint:
      *job.mutable_last_checkpoint() = event.checkpoint();
      break;
    default:
      break;
  }
}

double RanSeconds(const v1::Job& job, int64_t now_us) {
  const int64_t end_us = IsFinal(job.state()) ? job.ended_us() : now_us;
  const auto since_start = [&] {
    return job.started_us() == 0 ? 0 : std::max(static_cast<double>(end_us - job.started_us()) / 1e6, 0.);
  };
  if (job.has_external()) return since_start();
  return static_cast<double>(job.held_ms()) / 1e3 + (HoldsNodes(job) ? since_start() : 0);
}

double RanSeconds(const v1::GetJobResponse& job, int64_t now_us) {
  const bool done = job.job().state() == v1::JOB_STATE_COMPLETED || job.job().has_external();
  const bool ran = done || std::ranges::any_of(job.history(), [](const v1::JobEvent& event) {
                     return event.state_change().from() == v1::JOB_STATE_RUNNING;
                   });
  return IsFinal(job.job().state()) && !ran ? 0 : RanSeconds(job.job(), now_us);
}

int64_t NowMicros() { return SystemClock().Wall().micros; }

}  // namespace imgd::cli
