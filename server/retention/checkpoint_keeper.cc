#include "server/retention/checkpoint_keeper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

namespace imgd {
namespace {

constexpr auto kPeriod = std::chrono::hours(1);
/// Of many, so many are named.
constexpr size_t kMostNamed = 5;

std::string Counted(size_t n, const char* noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

}  // namespace

std::string TextOfPruned(const std::vector<PrunedCheckpoint>& removed, const PruneFailures& failures) {
  if (removed.empty()) {
    return fmt::format("{} of jobs that had ended could not be removed: {}",
                       Counted(failures.count, "checkpoint"), failures.first);
  }
  std::set<JobId> jobs;
  std::vector<std::string> named;
  uint64_t bytes = 0;
  size_t old = 0;
  for (const auto& each : removed) {
    jobs.insert(each.job);
    bytes += each.checkpoint.size_bytes;
    old += each.is_old ? 1 : 0;
    if (named.size() < kMostNamed) named.push_back(each.checkpoint.ref.path.native());
  }
  if (removed.size() > named.size()) named.push_back(fmt::format("{} more", removed.size() - named.size()));
  std::string text = fmt::format(
      "{} ({:.3f} GB) of {} that had ended were removed: {} by checkpoints_kept_for, {} by "
      "checkpoints_total_bytes: {}",
      Counted(removed.size(), "checkpoint"), static_cast<double>(bytes) / 1e9, Counted(jobs.size(), "job"),
      old, removed.size() - old, fmt::join(named, ", "));
  if (failures.count > 0) text += fmt::format("; {} could not be: {}", failures.count, failures.first);
  return text;
}

bool IsNews(const std::vector<PrunedCheckpoint>& removed, const PruneFailures& failures,
            const PruneFailures& told) {
  return !removed.empty() || (failures.count > 0 && failures != told);
}

Result<std::unique_ptr<CheckpointKeeper>> CheckpointKeeper::Start(const std::filesystem::path& folder,
                                                                  const Clock* clock, PruneRule rule,
                                                                  std::function<void(std::string)> tell) {
  IMGD_ASSIGN(auto reader, Reader::Open(folder));
  std::unique_ptr<CheckpointKeeper> keeper(
      new CheckpointKeeper(std::move(reader), clock, rule, std::move(tell)));
  keeper->thread_ = std::thread([keeper = keeper.get()] { keeper->Run(); });
  return keeper;
}

CheckpointKeeper::~CheckpointKeeper() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointKeeper::SetRule(PruneRule rule) {
  const std::lock_guard lock(mutex_);
  if (rule == rule_) return;
  rule_ = rule;
  due_ = true;
  changed_.notify_all();
}

bool CheckpointKeeper::IsEnding() {
  const std::lock_guard lock(mutex_);
  return end_;
}

void CheckpointKeeper::Run() {
  std::unique_lock lock(mutex_);
  while (!end_) {
    due_ = false;
    const PruneRule rule = rule_;
    lock.unlock();
    if (!rule.Empty()) RemoveBy(rule);
    lock.lock();
    changed_.wait_for(lock, kPeriod, [this] { return end_ || due_; });
  }
}

void CheckpointKeeper::RemoveBy(const PruneRule& rule) {
  const auto survey = SurveyCheckpoints(reader_, [this] { return IsEnding(); });
  const auto plan = survey ? PlanPruneOf(*survey, rule, clock_->Wall(), reader_)
                           : Result<std::vector<PrunedCheckpoint>>(tl::unexpected(survey.error()));
  if (!plan) {
    if (plan.error().code != ErrorCode::kCancelled)
      spdlog::error("msg=\"old checkpoints could not be looked for: {}\"", plan.error().ToString());
    return;
  }
  std::vector<PrunedCheckpoint> removed;
  PruneFailures failures;
  for (const auto& each : *plan) {
    if (IsEnding()) break;
    const auto done = RemovePruned(survey->roots.at(each.job), each.checkpoint.ref);
    if (!done) {
      if (failures.count++ > 0) continue;
      failures.first = done.error().ToString();
      spdlog::error("job={} msg=\"{}\"", each.job, failures.first);
    } else if (*done) {
      removed.push_back(each);
    }
  }
  const bool news = IsNews(removed, failures, told_);
  told_ = failures;
  if (news) tell_(TextOfPruned(removed, failures));
}

}  // namespace imgd
