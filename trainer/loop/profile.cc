#include "trainer/loop/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>
#include <utility>

#include "common/files.h"
#include "trainer/loop/profile_table.h"

namespace imgd::trainer {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr size_t kMostRows = 25;
constexpr const char* kScopePrefix = "imgtrain: ";

std::set<ActivityType> ActivitiesOf(const at::Device& device, bool kernels_only) {
  if (device.is_cuda() && kernels_only) return {ActivityType::CUDA};
  if (device.is_cuda()) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

std::vector<ProfiledEvent> EventsOf(const profiler::ProfilerResult& result) {
  std::vector<ProfiledEvent> out;
  for (const auto& event : result.events()) {
    if (event.isAsync()) continue;
    const bool on_gpu = event.deviceType() == at::kCUDA;
    // On the GPU our scopes come again, around their kernels.
    const bool is_scope = event.scope() == static_cast<uint8_t>(at::RecordScope::USER_SCOPE) ||
                          event.name().starts_with(kScopePrefix);
    out.push_back({.name = event.name(),
                   .thread = on_gpu ? static_cast<uint64_t>(event.deviceResourceId()) : event.startThreadId(),
                   .start_ns = static_cast<int64_t>(event.startNs()),
                   .end_ns = static_cast<int64_t>(event.endNs()),
                   .on_gpu = on_gpu,
                   .is_scope = is_scope});
  }
  return out;
}

StepClock::Times Since(const StepClock::Times& before, StepClock::Times now) {
  now.steps -= before.steps;
  for (size_t i = 0; i < kParts; ++i) now.of_part[i] -= before.of_part[i];
  return now;
}

double AllOf(const StepClock::Times& times) {
  double all = 0;
  for (const double seconds : times.of_part) all += seconds;
  return all;
}

/// Where the steps' time went, and what cost most of it.
std::string TextOf(const StepClock::Times& times, uint64_t first, std::vector<ProfiledEvent> events) {
  const double all = AllOf(times);
  const auto part = [&](const char* name, Part which) {
    const double seconds = times.seconds(which);
    return fmt::format("  {:<14}{:>10.2f} ms  {:>5.1f} %\n", name, 1000 * seconds / std::max(times.steps, 1U),
                       all > 0 ? 100 * seconds / all : 0);
  };
  std::string text = fmt::format("{} steps from step {} on; a step's time:\n", times.steps, first + 1);
  text += part("input", Part::kInput) + part("forward", Part::kForward) + part("backward", Part::kBackward) +
          part("communication", Part::kCommunication) + part("optimizer", Part::kOptimizer);
  text += "\nof all steps together:\n" + CostTable(CostsOf(events, false), "operator", all, kMostRows);
  const auto kernels = CostsOf(std::move(events), true);
  if (!kernels.empty()) text += "\n" + CostTable(kernels, "kernel on the GPU", all, kMostRows);
  return text;
}

}  // namespace

void StepProfiler::BeforeStep(uint64_t step, Commands& commands) {
  if (running_) return;
  const uint32_t asked = commands.TakeProfile();
  if (asked > 0) {
    return Begin(
        folder_ / fmt::format("profile.g{}.rank{}.step{}.json", env_.generation, env_.rank, step + 1), step,
        asked);
  }
  const auto& wish = env_.profile;
  if (wish && env_.rank == 0 && step == wish->first_step)
    Begin(wish->trace, step, wish->steps, wish->kernels_only);
}

void StepProfiler::Begin(std::filesystem::path trace, uint64_t first, uint64_t steps, bool kernels_only) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const auto activities = ActivitiesOf(device_, kernels_only);
  running_ = Running{.trace = std::move(trace), .first = first, .wanted = steps, .before = clock_.SoFar()};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(
      config, activities,
      {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE, at::RecordScope::BACKWARD_FUNCTION});
}

void StepProfiler::AfterStep(bool is_last) {
  if (!running_ || (++running_->done < running_->wanted && !is_last)) return;
  if (const auto written = End(); !written) {
    reporter_.Note("the profile is not written: " + written.error().ToString());
  }
  running_.reset();
}

Status StepProfiler::End() {
  const auto times = Since(running_->before, clock_.SoFar());
  const auto result = profiler::disableProfiler();
  const std::string text = TextOf(times, running_->first, EventsOf(*result));
  // Under its name once it is whole: somebody may wait for it.
  auto unfinished = running_->trace;
  unfinished += ".part.json";
  IMGD_TRY(MakeFolders(std::filesystem::absolute(running_->trace).parent_path()));
  result->save(unfinished);
  std::error_code error;
  std::filesystem::rename(unfinished, running_->trace, error);
  if (error) {
    return Fail(ErrorCode::kInternal, "cannot write {}: {}", running_->trace.native(), error.message());
  }
  auto table = running_->trace;
  table += ".txt";
  IMGD_TRY(WriteFileAtomically(table, text));
  reporter_.On(report::Profiled{.step = running_->first + running_->done,
                                .rank = env_.rank,
                                .trace = running_->trace.native(),
                                .text = text});
  return {};
}

}  // namespace imgd::trainer
