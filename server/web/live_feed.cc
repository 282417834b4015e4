#include "server/web/live_feed.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "server/rpc/convert.h"
#include "server/web/errors.h"
#include "server/web/json.h"

namespace imgd::web {
namespace {

constexpr auto kPace = std::chrono::milliseconds(250);
constexpr auto kJobPeriod = std::chrono::seconds(1);
/// A job's place, what it waits for and what it costs change without an event of its own: so often it is
/// looked at all the same, so many of them each time.
constexpr auto kAgainPeriod = std::chrono::seconds(5);
constexpr size_t kMostAgain = 10;
constexpr auto kDatasetPeriod = std::chrono::seconds(1);
constexpr auto kNodePeriod = std::chrono::seconds(3);
constexpr auto kSignOfLifePeriod = std::chrono::seconds(15);
constexpr int kComeAgainMs = 2000;
constexpr size_t kMostOfPage = 256;

/// One chunk of a chunked body (RFC 9112, 7.1).
Piece Frame(const std::string& text) {
  return std::make_shared<const std::string>(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

/// The message in JSON on one line.
std::string DataOf(const google::protobuf::Message& message) {
  std::string json = ToJson(message);
  json.pop_back();
  return json;
}

std::string EncodeEvent(const StoredDecision& decision) {
  return fmt::format("id: {}\nevent: event\ndata: {}\n\n", decision.number, DataOf(ToProto(decision)));
}

std::string EncodeJob(const v1::Job& job) { return fmt::format("event: job\ndata: {}\n\n", DataOf(job)); }

std::string EncodeGone(JobId job) { return fmt::format("event: job_gone\ndata: {{\"id\":\"{}\"}}\n\n", job); }

std::string EncodeStep(JobId job, const StoredEvent& event) {
  v1::StepMetrics step;
  step.ParseFromString(event.payload);
  return fmt::format("event: step\ndata: {{\"job_id\":\"{}\",\"generation\":\"{}\",\"time_us\":\"{}\",{}\n\n",
                     job, event.generation, event.time_us, DataOf(step).substr(1));
}

/// What was told before it may be of a state that is no more.
bool IsRestore(const StoredDecision& decision) {
  return decision.job == JobId() && decision.reason == static_cast<int>(ReasonCode::kRestored);
}

/// Of a node what its heartbeats tell.
v1::Node ReadingsOf(const v1::Node& node) {
  v1::Node out = node;
  out.clear_last_heartbeat_us();
  return out;
}

}  // namespace

Result<std::unique_ptr<LiveFeed>> LiveFeed::Start(const std::filesystem::path& folder, Engine* engine,
                                                  const Clock* clock) {
  IMGD_ASSIGN(auto reader, Reader::Open(folder));
  std::unique_ptr<LiveFeed> feed(new LiveFeed(std::move(reader), engine, clock));
  feed->thread_ = std::thread([feed = feed.get()] { feed->Run(); });
  return feed;
}

LiveFeed::~LiveFeed() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LiveFeed::Add(std::weak_ptr<Listener> listener, std::optional<uint64_t> after) {
  {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back({std::move(listener), after});
  }
  ready_.notify_all();
}

void LiveFeed::Run() {
  while (true) {
    const auto arrivals = Await();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (live_.empty() && !arrivals.empty()) Begin();
    if (!live_.empty()) Look();
    Admit(arrivals);
  }
}

/// Those who came since, after a while in which what happens gathers; without anybody, when somebody comes.
std::vector<LiveFeed::Arrival> LiveFeed::Await() {
  std::unique_lock lock(mutex_);
  const auto called = [this] { return stopping_ || !arrivals_.empty(); };
  if (live_.empty()) {
    ready_.wait(lock, called);
  } else {
    ready_.wait_for(lock, kPace, called);
  }
  return std::exchange(arrivals_, {});
}

uint64_t LiveFeed::NewestDecision() {
  const auto range = reader_.DecisionRange();
  if (!range) return last_;
  // What is published is in the engine's view, too; nothing was since the daemon's start: all that is stored
  // is. A published number may be of what could not be stored; it is given out anew after a restart.
  const uint64_t published = engine_->events().Version(kDecisionsTopic);
  return published == 0 ? range->second : std::min(published, range->second);
}

void LiveFeed::Begin() {
  last_ = NewestDecision();
  jobs_.clear();
  nodes_.clear();
  const Instant now = clock_->Now();
  nodes_due_ = now;
  datasets_ = engine_->View()->datasets;
  datasets_due_ = now;
  sign_of_life_due_ = now + kSignOfLifePeriod;
  JobFilter filter{.most = 1000};
  for (int state = v1::JOB_STATE_QUEUED; state <= v1::JOB_STATE_PAUSED; ++state)
    filter.states.push_back(static_cast<JobState>(state));
  while (const auto rows = reader_.Jobs(filter)) {
    for (const auto& row : *rows) jobs_[row.job.id].changed = false;
    if (rows->size() < filter.most) break;
    filter.before = rows->back().job.id;
  }
  for (auto& [id, known] : jobs_) known.version = engine_->PublishedEvent(id);
}

void LiveFeed::Look() {
  std::string text;
  AddDecisions(text);
  AddJobs(text);
  const Instant now = clock_->Now();
  if (now >= nodes_due_) {
    AddNodes(text);
    nodes_due_ = now + kNodePeriod;
  }
  if (now >= datasets_due_) {
    AddDatasets(text);
    datasets_due_ = now + kDatasetPeriod;
  }
  if (now >= sign_of_life_due_) text += ": imgd is there\n\n";
  if (text.empty()) return;
  sign_of_life_due_ = now + kSignOfLifePeriod;
  Broadcast(text);
}

void LiveFeed::Broadcast(const std::string& text) {
  const Piece piece = Frame(text);
  std::erase_if(live_, [&piece](const std::weak_ptr<Listener>& weak) {
    const auto listener = weak.lock();
    if (listener) listener->Send(piece, {});
    return !listener;
  });
}

void LiveFeed::AddDecisions(std::string& out) {
  const uint64_t newest = NewestDecision();
  while (last_ < newest) {
    const auto decisions = reader_.Decisions({.after = last_, .last = newest, .most = kMostOfPage});
    if (!decisions) {
      spdlog::warn("msg=\"stream: {}\"", decisions.error().message);
      return;  // tried again next time
    }
    for (const auto& decision : *decisions) {
      out += EncodeEvent(decision);
      if (decision.job != JobId()) jobs_[decision.job].changed = true;
    }
    last_ = decisions->size() < kMostOfPage ? newest : decisions->back().number;
  }
}

void LiveFeed::AddJobs(std::string& out) {
  const Instant now = clock_->Now();
  const auto view = engine_->View();
  size_t again = 0;
  for (auto& [id, known] : jobs_) {
    const uint64_t version = engine_->PublishedEvent(id);
    const bool news = known.changed || (version != known.version && now >= known.looked + kJobPeriod);
    const bool looks_again =
        !news && id > looked_again_ && again < kMostAgain && now >= known.looked + kAgainPeriod;
    if (!news && !looks_again) continue;
    if (looks_again) {
      ++again;
      looked_again_ = id;
    }
    known.version = version;
    known.looked = now;
    known.changed = !AddJob(id, known, *view, out);
  }
  if (again < kMostAgain) looked_again_ = JobId();  // from the first one on
  std::erase_if(jobs_, [](const auto& job) { return job.second.ended; });
}

bool LiveFeed::AddJob(JobId id, KnownJob& known, const ClusterView& view, std::string& out) {
  const auto row = reader_.Job(id, false);
  if (!row) return false;
  if (!*row) {  // it was deleted
    known.ended = true;
    out += EncodeGone(id);
    return true;
  }
  auto job = FullJob(**row, view, reader_);
  const auto step = reader_.Latest(id, EventKind::kStep);
  if (!job || !step) return false;
  v1::Job summary = *job;
  summary.clear_last_step();
  summary.clear_last_event_number();
  if (std::string bytes = summary.SerializeAsString(); bytes != known.summary) {
    known.summary = std::move(bytes);
    // That it costs more with each moment is no news.
    AddHeldSince((*row)->job, view, clock_->Wall(), *job);
    out += EncodeJob(*job);
  }
  if (*step && (*step)->number > known.step) {
    known.step = (*step)->number;
    out += EncodeStep(id, **step);
  }
  known.ended = IsFinal((*row)->job.state);
  return true;
}

void LiveFeed::AddNodes(std::string& out) {
  const auto view = engine_->View();
  v1::ListNodesResponse all;
  FillNodes(*view, all);
  v1::ListNodesResponse changed;
  changed.set_warning(all.warning());
  for (const auto& node : all.nodes()) {
    std::string bytes = ReadingsOf(node).SerializeAsString();
    std::string& said = nodes_[node.name()];
    if (bytes == said) continue;
    said = std::move(bytes);
    *changed.add_nodes() = node;
  }
  if (nodes_.size() > static_cast<size_t>(all.nodes_size())) {
    std::set<std::string_view> known;
    for (const auto& node : all.nodes()) known.insert(node.name());
    std::erase_if(nodes_, [&known](const auto& said) { return !known.contains(said.first); });
  }
  const bool other_warning = std::exchange(warning_, all.warning()) != all.warning();
  if (!changed.nodes().empty() || other_warning)
    out += fmt::format("event: nodes\ndata: {}\n\n", DataOf(changed));
}

void LiveFeed::AddDatasets(std::string& out) {
  const auto before = std::exchange(datasets_, engine_->View()->datasets);
  if (before == datasets_) return;
  v1::DatasetsChanged changed;
  for (const auto& [name, set] : *datasets_) {
    const auto said = before->find(name);
    if (said == before->end() || said->second != set) *changed.add_datasets() = ToProto(set);
  }
  for (const auto& [name, set] : *before) {
    if (!datasets_->contains(name)) changed.add_gone(name);
  }
  if (changed.datasets().empty() && changed.gone().empty()) return;
  out += fmt::format("event: datasets\ndata: {}\n\n", DataOf(changed));
}

void LiveFeed::Admit(const std::vector<Arrival>& arrivals) {
  for (const auto& arrival : arrivals) {
    if (arrival.after && *arrival.after != last_) {
      SendMissed(arrival);
    } else {
      TakeIn(arrival.listener, "");
    }
  }
}

void LiveFeed::TakeIn(const std::weak_ptr<Listener>& weak, std::string_view first) {
  const auto listener = weak.lock();
  if (!listener) return;
  // Its number is what a browser sends when it comes again, though no event had one yet.
  listener->Send(
      Frame(fmt::format("retry: {}\nid: {}\n{}event: live\ndata: {{}}\n\n", kComeAgainMs, last_, first)), {});
  live_.push_back(weak);
}

std::string LiveFeed::SummaryNow(JobId id) {
  const auto row = reader_.Job(id, false);
  if (!row) return "";
  if (!*row) return EncodeGone(id);
  const auto view = engine_->View();
  auto job = FullJob(**row, *view, reader_);
  if (!job) return "";
  AddHeldSince((*row)->job, *view, clock_->Wall(), *job);
  return EncodeJob(*job);
}

void LiveFeed::SendMissed(const Arrival& arrival) {
  const auto listener = arrival.listener.lock();
  if (!listener) return;
  const auto range = reader_.DecisionRange();
  const auto missed = reader_.Decisions({.after = *arrival.after, .last = last_, .most = kMostOfPage});
  const bool gone = !range || !missed || *arrival.after > last_ || *arrival.after + 1 < range->first ||
                    (!missed->empty() && IsRestore(missed->front()));
  // One that can't have what it missed loads everything anew, which is right in any case.
  if (gone) return TakeIn(arrival.listener, "event: reset\ndata: {}\n\n");
  std::string text;
  uint64_t had = last_;
  if (!missed->empty()) {
    std::set<JobId> jobs;
    for (const auto& decision : *missed) {
      text += EncodeEvent(decision);
      if (decision.job != JobId()) jobs.insert(decision.job);
    }
    for (const JobId job : jobs) text += SummaryNow(job);
    if (missed->size() == kMostOfPage) had = missed->back().number;
  }
  // The next page when this one is on its way: what somebody lacks is never in memory as a whole.
  const auto next = [this, weak = arrival.listener, had] { Add(weak, had); };
  if (text.empty()) return next();
  listener->Send(Frame(text), next);
}

Handler StreamHandler(LiveFeed* feed) {
  return [feed](const Request& request, const Answer& answer) {
    std::optional<uint64_t> after;
    if (const std::string& text = request.last_event_id; !text.empty()) {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size() || number > INT64_MAX) {
        answer(ErrorResponse(400, "INVALID_ARGUMENT", "Last-Event-ID: the number of an event is expected"));
        return;
      }
      after = number;
    }
    answer({.content_type = "text/event-stream",
            .feed = [feed, after](const std::shared_ptr<Listener>& who) { feed->Add(who, after); }});
  };
}

}  // namespace imgd::web
