#include "trainer/report/http_reporter.h"

#include <google/protobuf/util/json_util.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "common/url.h"
#include "common/utf8.h"
#include "imgd/v1/report.pb.h"
#include "trainer/report/event_of.h"
#include "trainer/report/event_queue.h"
#include "trainer/report/http_post.h"

namespace imgd::report {
namespace {

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

bool ParseJson(const std::string& text, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  return google::protobuf::util::JsonStringToMessage(text, &message, options).ok();
}

/// New for each run: a job of its own.
std::string NewKey() {
  std::random_device random;
  std::string key = "imgtrain-";
  for (int i = 0; i < 4; ++i) key += fmt::format("{:08x}", random());
  return key;
}

v1::StartReportRequest StartOf(const HttpReport& report) {
  v1::StartReportRequest start;
  start.set_name(ToUtf8(report.name));
  start.set_job_yaml(ToUtf8(report.job_yaml));
  start.set_owner(ToUtf8(report.owner));
  for (const auto& host : report.hosts) start.add_hosts(ToUtf8(host));
  start.set_nodes(static_cast<uint32_t>(report.nodes));
  start.set_ranks_per_node(static_cast<uint32_t>(report.ranks_per_node));
  start.set_checkpoint_dir(ToUtf8(report.checkpoint_dir));
  start.set_idempotency_key(NewKey());
  return start;
}

/// Why imgd did not do what it was asked.
struct Trouble {
  std::string sentence;
  int status = 0;  ///< of its answer; 0 when there was none
  Duration wait{};
  /// Another try alone does not help.
  bool IsRefusal() const { return status >= 400 && status < 500 && status != 408 && status != 429; }
};

class HttpReporter final : public Reporter {
 public:
  HttpReporter(HttpReport report, const Clock& clock, std::function<void(const std::string&)> say)
      : report_(std::move(report)),
        clock_(clock),
        say_(std::move(say)),
        start_(JsonOf(StartOf(report_))),
        post_({.token = report_.token, .ca_file = report_.ca_file}),
        wait_(report_.first_wait),
        queue_(report_.most_waiting),
        thread_([this](const std::stop_token& stop) { Work(stop); }) {}

  void On(const Started& x) override { Add(EventOf(x), true); }
  void On(const StepFigures& x) override { Add(EventOf(x), false); }
  void On(const EpochFigures& x) override { Add(EventOf(x), false); }
  void On(const CheckpointFigures& x) override { Add(EventOf(x), false); }
  void On(const Profiled& x) override { Add(EventOf(x), false); }
  void On(const Finished& x) override { Add(EventOf(x), true); }
  void On(const Failed& x) override {
    AddNote("imgtrain: error: " + x.message, true);
    Add(EventOf(x), true);
    Drain(report_.time_to_fail);
  }
  void On(const BadImage& x) override { Add(EventOf(x), false); }
  void Note(const std::string& sentence) override { AddNote(sentence, true); }

  void Drain(Duration most) override {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::min(most, report_.time_to_end),
                      [this] { return queue_.empty() || refused_; });
    if (queue_.empty()) return;
    const std::string text =
        fmt::format("{} of this run could not be sent to imgd at {}: {}", Events(queue_.size()), report_.url,
                    trouble_.empty() ? "it has not answered yet" : trouble_);
    lock.unlock();
    say_(text);
  }

 private:
  static std::string Events(size_t count) { return count == 1 ? "1 event" : fmt::format("{} events", count); }

  void Add(v1::TrainerEvent event, bool at_once) {
    event.set_time_us(clock_.Wall().micros);
    {
      const std::lock_guard lock(mutex_);
      queue_.Add(std::move(event));
      hurry_ = hurry_ || at_once;
    }
    changed_.notify_all();
  }

  /// Each line of the text is one.
  void AddNote(std::string_view text, bool is_stderr) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      v1::TrainerEvent event;
      event.mutable_note()->set_text(ToUtf8(text.substr(0, end)));
      event.mutable_note()->set_is_stderr(is_stderr);
      Add(std::move(event), false);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  void Work(const std::stop_token& stop) {
    // What OpenSSL writes to a connection that is gone must not end the run.
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    while (!stop.stop_requested()) {
      if (job_ != 0 && !AwaitSomething(stop)) return;
      const auto trouble = job_ == 0 ? Begin(stop) : Send(stop);
      if (stop.stop_requested()) return;
      if (trouble) {
        OnTrouble(*trouble, stop);
      } else {
        OnSuccess();
      }
    }
  }

  /// Until there are events, and some time for more of them to come; or a sign of life is due.
  bool AwaitSomething(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto due = [this] { return hurry_ || ending_ || queue_.size() >= EventQueue::kMostInBatch; };
    if (!changed_.wait_for(lock, stop, report_.beat, [this] { return !queue_.empty(); })) {
      return !stop.stop_requested();
    }
    changed_.wait_for(lock, stop, report_.gather, due);
    return !stop.stop_requested();
  }

  /// Nothing when it went well.
  std::optional<Trouble> Begin(const std::stop_token& stop) {
    v1::StartReportResponse answer;
    if (auto trouble = Ask("/api/v1/reports", start_, answer, stop)) return trouble;
    if (answer.job_id() == 0) return Trouble{.sentence = "its answer names no job; is it an imgd?"};
    job_ = answer.job_id();
    const std::lock_guard lock(mutex_);
    if (!answer.existed()) queue_.StartAnew();
    queue_.Acknowledge(answer.sequence());
    return std::nullopt;
  }

  std::optional<Trouble> Send(const std::stop_token& stop) {
    v1::ReportEventsRequest request;
    uint64_t first = 0;
    {
      const std::lock_guard lock(mutex_);
      hurry_ = false;
      for (const auto& event : queue_.Batch()) *request.add_events() = event;
      if (!request.events().empty()) first = request.events(0).sequence();
    }
    v1::ReportEventsResponse answer;
    auto trouble = Ask(fmt::format("/api/v1/reports/{}/events", job_), JsonOf(request), answer, stop);
    const std::lock_guard lock(mutex_);
    if (trouble) {
      if (trouble->status == 404) job_ = 0;  // its database is another: the run is new to it
      if (trouble->status == 400 || trouble->status == 413) queue_.DropBatch();
      return trouble;
    }
    queue_.Acknowledge(answer.sequence());
    if (first == 0 || answer.sequence() >= first) return std::nullopt;
    return Trouble{.sentence = fmt::format("it has stored no event after number {}", answer.sequence())};
  }

  template <typename Message>
  std::optional<Trouble> Ask(const std::string& path, const std::string& body, Message& answer,
                             const std::stop_token& stop) {
    const auto reply = post_.Post(report_.url + path, body, stop);
    if (!reply) return Trouble{.sentence = reply.error().ToString()};
    if (reply->status == 200) {
      if (ParseJson(reply->body, answer)) return std::nullopt;
      return Trouble{.sentence = "its answer can't be read; is it an imgd?"};
    }
    Trouble trouble{.sentence = fmt::format("it answers {}", reply->status),
                    .status = reply->status,
                    .wait = reply->retry_after};
    v1::ErrorAnswer error;
    if (ParseJson(reply->body, error) && !error.message().empty()) {
      trouble.sentence = error.message();
    } else if (reply->status >= 300 && reply->status < 400) {
      trouble.sentence += ", a redirect, which is not followed";
    }
    return trouble;
  }

  void OnTrouble(const Trouble& trouble, const std::stop_token& stop) {
    const bool refusal = trouble.IsRefusal();
    bool is_new = false;
    {
      const std::lock_guard lock(mutex_);
      // Once an outage, but also when the cause becomes one that somebody has to mend.
      is_new = trouble_.empty() || (refusal && !refused_);
      trouble_ = trouble.sentence;
      refused_ = refusal;
    }
    changed_.notify_all();
    if (is_new && refusal) {
      say_(fmt::format("imgd at {} refuses what it is told of this run: {}; training goes on", report_.url,
                       trouble.sentence));
    } else if (is_new) {
      say_(fmt::format("imgd at {} can't be told of this run: {}; training goes on, and it is tried again",
                       report_.url, trouble.sentence));
    }
    std::unique_lock lock(mutex_);
    // At the end of the run there is no time for more.
    const bool was_ending = ending_;
    const Duration wait = was_ending ? report_.first_wait : std::max(wait_, trouble.wait);
    wait_ = std::min(wait_ * 2, report_.longest_wait);
    changed_.wait_for(lock, stop, wait, [&] { return ending_ && !was_ending; });
  }

  void OnSuccess() {
    bool was_away = false;
    {
      const std::lock_guard lock(mutex_);
      was_away = !trouble_.empty();
      trouble_.clear();
      refused_ = false;
      wait_ = report_.first_wait;
    }
    changed_.notify_all();
    if (std::exchange(told_, job_) != job_) {
      say_(fmt::format("imgd at {} shows this run as job {}", report_.url, job_));
    } else if (was_away) {
      say_(fmt::format("imgd at {} is told of this run again", report_.url));
    }
  }

  const HttpReport report_;
  const Clock& clock_;
  const std::function<void(const std::string&)> say_;
  const std::string start_;  ///< the first request's body

  // The thread's:
  HttpPost post_;
  uint64_t job_ = 0;   ///< 0 before imgd knows of the run
  uint64_t told_ = 0;  ///< the number that people were told

  std::mutex mutex_;  ///< guards all below; never held while something is sent
  std::condition_variable_any changed_;
  Duration wait_;  ///< before the next try
  EventQueue queue_;
  bool hurry_ = false;    ///< something that waits should be there soon
  bool ending_ = false;   ///< the run is over
  bool refused_ = false;  ///< the last answer was a refusal: waiting does not help
  std::string trouble_;   ///< why the last try failed; empty when it did not
  std::jthread thread_;
};

}  // namespace

Result<std::string> CheckReportUrl(const std::string& text) {
  const auto url = ParseUrl(text);
  if (!url) return Fail(ErrorCode::kInvalidArgument, "--report: {}", url.error().message);
  if (url->scheme != "https" && url->scheme != "http") {
    return Fail(ErrorCode::kInvalidArgument, "--report: found {}; https://HOST:PORT is expected",
                url->ForPeople());
  }
  if (!url->userinfo.empty() || !url->query.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--report: {} has a name, a password or a query; the token comes from IMGD_REPORT_TOKEN or "
                "--report-token-file",
                url->ForPeople());
  }
  if (url->scheme == "http" && !IsLoopbackHost(url->host)) {
    return Fail(ErrorCode::kInvalidArgument,
                "--report: {} is plain http to another machine, which would show the token to the network; "
                "take https",
                url->ForPeople());
  }
  std::string plain = url->ToString();
  while (plain.ends_with('/')) plain.pop_back();
  return plain;
}

std::unique_ptr<Reporter> MakeHttpReporter(HttpReport report, const Clock& clock,
                                           std::function<void(const std::string&)> say) {
  return std::make_unique<HttpReporter>(std::move(report), clock, std::move(say));
}

}  // namespace imgd::report
