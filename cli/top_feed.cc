#include "cli/top_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "cli/watch_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEvery = 2s;
constexpr uint32_t kMostLive = 1000;  ///< jobs that have not ended
constexpr uint32_t kNewest = 50;      ///< of all, for those that have
constexpr size_t kMostLosses = 40;    ///< jobs whose losses are drawn
constexpr uint32_t kLossPoints = 64;
constexpr uint32_t kCurvePoints = 400;
constexpr uint32_t kLogLines = 500;  ///< of a rank
constexpr uint32_t kManyRanks = 16;  ///< from so many on a rank has fewer
constexpr uint32_t kFewLogLines = 20;

v1::ListJobsRequest LiveJobs() {
  v1::ListJobsRequest request;
  for (const auto state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
                           v1::JOB_STATE_PREEMPTING, v1::JOB_STATE_PAUSED})
    request.add_states(state);
  request.set_page_size(kMostLive);
  return request;
}

}  // namespace

void TopFeed::Stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (!thread_.joinable()) return;
  // What is being asked may take long where the daemon is away.
  if (!interrupt_.Triggered()) interrupt_.Trigger(SIGTERM);
  thread_.join();
}

Reply<void> TopFeed::Begin() {
  auto fetched = FetchCluster();
  if (!fetched) return tl::unexpected(std::move(fetched).error());
  FetchLosses(*fetched);
  Keep(std::move(fetched));
  return {};
}

void TopFeed::Start(std::function<void()> changed) {
  changed_ = std::move(changed);
  thread_ = std::thread([this] { Loop(); });
}

TopData TopFeed::Now() const {
  const std::lock_guard lock(mutex_);
  return data_;
}

void TopFeed::Open(uint64_t job) {
  const std::lock_guard lock(mutex_);
  if (open_ == job) return;
  open_ = job;
  data_.job.reset();
  data_.job_problem.clear();
  hurry_ = job != 0;
  wake_.notify_all();
}

void TopFeed::Cancel(uint64_t job, bool checkpoint) {
  const std::lock_guard lock(mutex_);
  cancel_ = CancelOrder{.job = job, .checkpoint = checkpoint};
  wake_.notify_all();
}

bool TopFeed::AwaitWork() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kEvery, [this] { return ending_ || hurry_ || cancel_.has_value(); });
  hurry_ = false;
  return !ending_;
}

void TopFeed::Loop() {
  while (AwaitWork()) {
    std::optional<CancelOrder> order;
    uint64_t open = 0;
    {
      const std::lock_guard lock(mutex_);
      order = std::exchange(cancel_, std::nullopt);
      open = open_;
    }
    if (order) DoCancel(*order);
    if (open != 0) {
      FetchJob(open);
      changed_();
    }
    auto fetched = FetchCluster();
    if (fetched) FetchLosses(*fetched);
    if (interrupt_.Triggered()) return;
    Keep(std::move(fetched));
    changed_();
  }
}

Reply<TopData> TopFeed::FetchCluster() {
  TopData data;
  data.server = client_.address().target;
  auto nodes = client_.ListNodes();
  if (!nodes) return tl::unexpected(std::move(nodes).error());
  auto live = client_.ListJobs(LiveJobs());
  if (!live) return tl::unexpected(std::move(live).error());
  v1::ListJobsRequest newest;
  newest.set_page_size(kNewest);
  auto all = client_.ListJobs(newest);
  if (!all) return tl::unexpected(std::move(all).error());
  data.taken_us = NowMicros();
  data.warning = nodes->warning();
  data.more_jobs = !live->next_page_token().empty();
  data.nodes.assign(nodes->nodes().begin(), nodes->nodes().end());
  data.jobs.assign(live->jobs().begin(), live->jobs().end());
  for (auto& job : *all->mutable_jobs()) {
    const auto is_it = [&](const v1::Job& other) { return other.id() == job.id(); };
    if (std::none_of(data.jobs.begin(), data.jobs.end(), is_it)) data.jobs.push_back(std::move(job));
  }
  SortForTop(data.jobs);
  return data;
}

void TopFeed::FetchLosses(TopData& data) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : data.jobs) {
      if (const auto known = data_.losses.find(job.id()); known != data_.losses.end())
        data.losses.insert(*known);
    }
  }
  std::erase_if(losses_at_, [&data](const auto& known) { return !data.losses.contains(known.first); });
  size_t seen = 0;
  for (const auto& job : data.jobs) {
    if (!job.has_last_step()) continue;
    if (++seen > kMostLosses || interrupt_.Triggered()) return;
    uint64_t& at = losses_at_[job.id()];
    if (at == job.last_step().step()) continue;
    v1::GetMetricsRequest request;
    request.set_id(job.id());
    request.add_names("loss");
    request.set_points(kLossPoints);
    const auto metrics = client_.GetMetrics(request);
    // A daemon that does not know them is no reason to show nothing of it.
    if (!metrics) return;
    at = job.last_step().step();
    auto& losses = data.losses[job.id()];
    losses.clear();
    for (const auto& series : metrics->series()) {
      for (const auto& point : series.points()) losses.push_back(point.last());
    }
  }
}

void TopFeed::FetchJob(uint64_t id) {
  auto job = client_.GetJob(id);
  if (!job) {
    // Of an outage the cluster's part tells, and what was there stays.
    if (IsOutage(job.error()) || interrupt_.Triggered()) return;
    const std::lock_guard lock(mutex_);
    data_.job_problem = job.error().front().message;
    return;
  }
  TopJob open{.job = std::move(*job)};
  open.total_epochs = TotalEpochs(open.job.job());
  if (open.job.job().has_last_step()) {
    v1::GetMetricsRequest request;
    request.set_id(id);
    for (const char* name : {"loss", "top1", "images_per_second"}) request.add_names(name);
    request.set_points(kCurvePoints);
    if (auto metrics = client_.GetMetrics(request)) open.metrics = std::move(*metrics);
  }
  v1::ListLogsRequest logs;
  logs.set_id(id);
  logs.set_tail(RanksNow(open.job.job()) > kManyRanks ? kFewLogLines : kLogLines);
  if (auto lines = client_.ListLogs(logs)) open.lines.assign(lines->lines().begin(), lines->lines().end());
  const std::lock_guard lock(mutex_);
  if (open_ != id) return;
  data_.job = std::move(open);
  data_.job_problem.clear();
}

void TopFeed::Keep(Reply<TopData> fetched) {
  const std::lock_guard lock(mutex_);
  if (!fetched) {
    if (data_.outage.empty()) data_.away_since_us = NowMicros();
    data_.outage = fetched.error().front().message;
    return;
  }
  fetched->job = std::move(data_.job);
  fetched->job_problem = std::move(data_.job_problem);
  fetched->message = std::move(data_.message);
  fetched->message_style = data_.message_style;
  fetched->message_us = data_.message_us;
  if (!data_.outage.empty()) {
    fetched->message = "imgd is back";
    fetched->message_style = Style::kGood;
    fetched->message_us = NowMicros();
  }
  data_ = std::move(*fetched);
}

void TopFeed::Tell(std::string message, Style style) {
  {
    const std::lock_guard lock(mutex_);
    data_.message = std::move(message);
    data_.message_style = style;
    data_.message_us = NowMicros();
  }
  changed_();
}

void TopFeed::DoCancel(const CancelOrder& order) {
  v1::CancelJobRequest request;
  request.set_id(order.job);
  request.set_checkpoint(order.checkpoint);
  request.set_actor(actor_);
  const auto answer =
      client_.CancelJob(request, [this] { Tell("imgd does not answer; asking it again", Style::kWarn); });
  if (!answer) return Tell(answer.error().front().message, Style::kBad);
  Tell(fmt::format("{} is being cancelled{}", JobTitle(answer->job()),
                   order.checkpoint ? ", after a checkpoint" : ""),
       Style::kGood);
}

}  // namespace imgd::cli
