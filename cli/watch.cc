#include "cli/watch.h"

#include <algorithm>

#include "cli/commands.h"
#include "cli/job_ref.h"
#include "cli/watch_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRedraw = 500ms;     ///< how long a figure on the screen may stay old
constexpr Duration kReasonEvery = 3s;   ///< how often a waiting job is asked for its reason
constexpr Duration kReopen = 200ms;     ///< before a stream that ended early is opened again
constexpr Duration kSlowestRetry = 1s;  ///< between two tries to reach an absent daemon

Instant Now() { return std::chrono::steady_clock::now(); }

/// Follows one job; the state between two streams of events.
class Follower {
 public:
  Follower(Context& context, Client& client, uint64_t id, const WatchOptions& options)
      : context_(context),
        client_(client),
        id_(id),
        options_(options),
        view_(MakeWatchView(context, options)) {}

  int Run() {
    if (options_.no_follow) return PrintStored();
    auto first = client_.GetJob(id_);
    if (!first) return context_.Fail(first.error());
    job_ = first->job();
    after_ = options_.from_event ? std::max<uint64_t>(*options_.from_event, 1) - 1 : job_.last_event_number();
    view_->OnBegin(*first, options_.from_event.has_value());
    if (IsFinal(job_.state()) && !options_.from_event) return End(*first);
    while (true) {
      auto ended = ReadStream();
      if (context_.interrupt().Triggered()) return Interrupted();
      if (const auto code = context_.OutputIsOver()) return *code;
      if (!ended && ended.error().front().code == ErrorCode::kNotFound) return Fail(ended.error());
      auto now = Reconnect();
      if (context_.interrupt().Triggered()) return Interrupted();
      if (!now) return Fail(now.error());
      if (IsFinal(now->job().state())) {
        if (ended) return End(*now);
        // Of a stream that broke off, what the job did up to its end is still to be read.
        if (!IsOutage(ended.error())) return Fail(ended.error());
      }
      context_.interrupt().WaitFor(kReopen);
    }
  }

 private:
  /// Shows the events that there are. Stopping in the middle is a failure: nobody will ask for the rest. But
  /// who reads them, as by a pager, may take longer than a stream lasts: after one that brought some, another
  /// is opened.
  int PrintStored() {
    after_ = std::max<uint64_t>(options_.from_event.value_or(1), 1) - 1;
    while (true) {
      const uint64_t before = after_;
      auto ended = ReadStream();
      if (ended) return 0;
      if (!IsOutage(ended.error()) || after_ == before) return context_.Fail(ended.error());
    }
  }

  /// Reads events until the stream ends, for whatever reason.
  Reply<void> ReadStream() {
    v1::WatchJobRequest request;
    request.set_id(id_);
    request.set_after_event(after_);
    request.set_no_follow(options_.no_follow);
    const auto stream = client_.WatchJob(request);
    v1::WatchJobResponse response;
    while (true) {
      switch (stream->Next(response, Now() + kRedraw)) {
        case Stream<v1::WatchJobResponse>::Outcome::kEnd:
          return stream->Finish();
        case Stream<v1::WatchJobResponse>::Outcome::kIdle:
          if (options_.no_follow) break;
          RefreshReason();
          view_->OnIdle(job_);
          break;
        case Stream<v1::WatchJobResponse>::Outcome::kItem:
          TakeEvent(response.event());
          break;
      }
      if (context_.OutputIsOver() || context_.interrupt().Triggered()) return {};
    }
  }

  void TakeEvent(const v1::JobEvent& event) {
    // A stream that was opened again may repeat its last event.
    if (event.number() <= after_) return;
    after_ = event.number();
    // A replayed event is older than what is known of the job.
    if (event.number() > job_.last_event_number()) ApplyEvent(event, job_);
    view_->OnEvent(event, job_);
  }

  /// The scheduler's reason changes without an event while the job waits.
  void RefreshReason() {
    if (job_.state() != v1::JOB_STATE_QUEUED || Now() < reason_due_) return;
    reason_due_ = Now() + kReasonEvery;
    const auto now = client_.GetJob(id_);
    if (!now || now->job().state() != job_.state() || now->job().reason_text() == job_.reason_text()) return;
    job_.set_reason(now->job().reason());
    job_.set_reason_text(now->job().reason_text());
    view_->OnReason(job_);
  }

  Reply<v1::GetJobResponse> Reconnect() {
    bool away = false;
    auto now = AwaitDaemon(context_, client_, id_, [&](const Errors& errors) {
      away = true;
      view_->OnOutage(job_, errors);
    });
    if (now && away) {
      // What is newer comes with the events; the state as of now is for showing only.
      view_->OnBack(now->job());
    }
    return now;
  }

  int Fail(const Errors& errors) {
    view_->Close();
    return context_.Fail(errors);
  }

  int End(const v1::GetJobResponse& job) {
    view_->OnEnd(job);
    return ExitCodeOfState(job.job().state());
  }

  int Interrupted() {
    view_->Close();
    if (options_.ending) {
      context_.Say(fmt::format("no longer waiting; {} is being cancelled", JobTitle(job_)));
    } else {
      context_.Say(
          fmt::format("no longer watching; {} goes on ({})", JobTitle(job_), HowToEnd(context_, job_)));
    }
    return context_.interrupt().ExitCode();
  }

  Context& context_;
  Client& client_;
  const uint64_t id_;
  const WatchOptions options_;
  std::unique_ptr<WatchView> view_;
  v1::Job job_;
  uint64_t after_ = 0;  ///< number of the last event that was shown
  Instant reason_due_{};
};

int RunWatch(Context& context, const std::string& reference, const WatchOptions& options) {
  context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto id = FindJob(**client, reference);
  if (!id) return context.Fail(id.error());
  return FollowJob(context, **client, *id, options);
}

}  // namespace

Reply<v1::GetJobResponse> AwaitDaemon(Context& context, Client& client, uint64_t id,
                                      const std::function<void(const Errors&)>& announce) {
  auto reply = client.GetJob(id);
  if (reply || !IsOutage(reply.error())) return reply;
  announce(reply.error());
  const Instant began = Now();
  for (Duration pause = kReopen;; pause = std::min(pause * 3 / 2, kSlowestRetry)) {
    if (context.interrupt().WaitFor(pause)) return reply;
    reply = client.GetJob(id);
    if (reply || !IsOutage(reply.error())) return reply;
    if (context.timeout && Now() - began > *context.timeout) return reply;
  }
}

std::string HowToEnd(const Context& context, const v1::Job& job) {
  if (job.has_external()) return "it was " + ByHandText(job);
  return context.Suggest(fmt::format("cancel {}", job.id())) + " ends it";
}

int FollowJob(Context& context, Client& client, uint64_t id, const WatchOptions& options) {
  return Follower(context, client, id, options).Run();
}

void AddWatchCommand(Command app, Context& context) {
  struct Options {
    std::string job;
    WatchOptions watch;
  };
  auto options = std::make_shared<Options>();
  Command command = app.AddSubcommand("watch", "Follow a job until it has ended");
  AddJobArgument(command, options->job);
  command.AddNumber("--from-event",
                    "Show the job's events from this number on, 1 for all (default: new ones only)", 0,
                    UINT64_MAX, [options](uint64_t number) { options->watch.from_event = number; });
  command.AddFlag("--no-follow", options->watch.no_follow,
                  "Show all events that there are (or those from --from-event on) and end");
  AddOutputOption(command, options->watch.format, kPlainFormats);
  command.Footer(
      "On a terminal the job is shown in place, elsewhere with one line for each event (-o json: one JSON\n"
      "object a line, -o yaml: one document an event). Goes on when imgd restarts. Ctrl-C ends the watching, "
      "not the job.\n\n"
      "Exit code: 0 the job completed, 6 it failed, 7 it was cancelled, 130 after Ctrl-C.\n\n"
      "Examples:\n"
      "  imgcli watch 12\n"
      "  imgcli watch rn18-demo --no-follow -o json > events.jsonl");
  command.Runs([&context, options] { return RunWatch(context, options->job, options->watch); });
}

void AddWaitCommand(Command app, Context& context) {
  auto job = std::make_shared<std::string>();
  Command command = app.AddSubcommand(
      "wait", "Wait until a job has ended; say nothing before, and how it ended on standard error");
  AddJobArgument(command, *job);
  command.Footer(
      "Exit code: 0 the job completed, 6 it failed, 7 it was cancelled, 130 after Ctrl-C.\n\n"
      "Examples:\n"
      "  imgcli wait 12 && ./evaluate.sh");
  command.Runs([&context, job] { return RunWatch(context, *job, {.quiet = true}); });
}

}  // namespace imgd::cli
