#include "cli/top_feed.h"

#include <fmt/format.h>

#include <csignal>

#include "cli/watch_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEvery = 2s;
constexpr Duration kLastOrders = 5s;     ///< how long orders hold up who leaves
constexpr uint32_t kHoldingPage = 1000;  ///< of the jobs that hold nodes, which are all asked for
constexpr uint32_t kMostWaiting = 1000;  ///< jobs in the queue or paused
constexpr uint32_t kNewest = 50;         ///< of all, for those that have ended
constexpr size_t kMostLosses = 40;       ///< jobs whose losses are drawn
constexpr uint32_t kLossPoints = 64;
constexpr uint32_t kCurvePoints = 400;
constexpr uint32_t kLogLines = 500;  ///< of a rank
constexpr uint32_t kManyRanks = 16;  ///< from so many on a rank has fewer
constexpr uint32_t kFewLogLines = 20;

/// The newest jobs in one of these states, or in any where none is named.
v1::ListJobsRequest NewestJobs(std::initializer_list<v1::JobState> states, uint32_t page_size) {
  v1::ListJobsRequest request;
  for (const auto state : states) request.add_states(state);
  request.set_page_size(page_size);
  return request;
}

Error NotCancelled(uint64_t job, ErrorCode code, const std::string& why) {
  return {.code = code,
          .message = fmt::format("job {} may go on: {}", job, why),
          .hint = fmt::format("imgcli cancel {} asks again", job)};
}

}  // namespace

Errors TopFeed::Stop() {
  if (!thread_.joinable()) return {};
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    wake_.notify_all();
    wake_.wait_for(lock, kLastOrders, [this] { return over_ || orders_.empty(); });
  }
  // What is being asked may take long where the daemon is away.
  if (!interrupt_.Triggered()) interrupt_.Trigger(SIGTERM);
  thread_.join();
  for (const auto& order : orders_)
    lost_.push_back(NotCancelled(order.job, ErrorCode::kUnavailable, "imgd had not answered at the end"));
  return std::move(lost_);
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
  orders_.push_back({.job = job, .checkpoint = checkpoint});
  wake_.notify_all();
}

bool TopFeed::AwaitWork() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kEvery, [this] { return ending_ || hurry_ || !orders_.empty(); });
  hurry_ = false;
  return !ending_ || !orders_.empty();
}

void TopFeed::Loop() {
  while (AwaitWork()) {
    SendOrders();
    uint64_t open = 0;
    {
      const std::lock_guard lock(mutex_);
      open = open_;
    }
    if (open != 0) {
      FetchJob(open);
      changed_();
    }
    auto fetched = FetchCluster();
    if (fetched) FetchLosses(*fetched);
    if (interrupt_.Triggered()) break;
    Keep(std::move(fetched));
    changed_();
  }
  const std::lock_guard lock(mutex_);
  over_ = true;
  wake_.notify_all();
}

Reply<TopData> TopFeed::FetchCluster() {
  TopData data;
  data.server = client_.address().target;
  auto nodes = client_.ListNodes();
  if (!nodes) return tl::unexpected(std::move(nodes).error());
  if (auto fetched = FetchJobs(data); !fetched) return tl::unexpected(std::move(fetched).error());
  data.taken_us = NowMicros();
  data.warning = nodes->warning();
  data.nodes.assign(nodes->nodes().begin(), nodes->nodes().end());
  return data;
}

Reply<void> TopFeed::FetchJobs(TopData& data) {
  std::map<uint64_t, v1::Job> jobs;  // of what is said twice the later counts
  const auto take = [&](const v1::ListJobsRequest& request) -> Reply<std::string> {
    auto page = client_.ListJobs(request);
    if (!page) return tl::unexpected(std::move(page).error());
    for (auto& job : *page->mutable_jobs()) {
      const uint64_t id = job.id();
      jobs.insert_or_assign(id, std::move(job));
    }
    return page->next_page_token();
  };
  if (auto newest = take(NewestJobs({}, kNewest)); !newest) return tl::unexpected(std::move(newest).error());
  auto more = take(NewestJobs({v1::JOB_STATE_QUEUED, v1::JOB_STATE_PAUSED}, kMostWaiting));
  if (!more) return tl::unexpected(std::move(more).error());
  data.more_jobs = !more->empty();
  auto holding =
      NewestJobs({v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_PREEMPTING}, kHoldingPage);
  do {
    auto next = take(holding);
    if (!next) return tl::unexpected(std::move(next).error());
    holding.set_page_token(*next);
  } while (!holding.page_token().empty());
  for (auto& known : jobs) data.jobs.push_back(std::move(known.second));
  SortForTop(data.jobs);
  return {};
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

void TopFeed::SendOrders() {
  while (true) {
    CancelOrder order;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) return;
      order = orders_.front();
    }
    const auto sent = DoCancel(order);
    // What was broken off is not answered.
    if (!sent && interrupt_.Triggered()) return;
    const std::lock_guard lock(mutex_);
    orders_.pop_front();
    if (!sent && ending_)
      lost_.push_back(NotCancelled(order.job, sent.error().front().code, sent.error().front().message));
    wake_.notify_all();
  }
}

Reply<void> TopFeed::DoCancel(const CancelOrder& order) {
  v1::CancelJobRequest request;
  request.set_id(order.job);
  request.set_checkpoint(order.checkpoint);
  request.set_actor(actor_);
  auto answer =
      client_.CancelJob(request, [this] { Tell("imgd does not answer; asking it again", Style::kWarn); });
  if (!answer) {
    Tell(answer.error().front().message, Style::kBad);
    return tl::unexpected(std::move(answer).error());
  }
  Tell(fmt::format("{} is being cancelled{}", JobTitle(answer->job()),
                   order.checkpoint ? ", after a checkpoint" : ""),
       Style::kGood);
  return {};
}

}  // namespace imgd::cli
