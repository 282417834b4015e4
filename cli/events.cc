#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/event_text.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAtReader = 500ms;                           ///< whether somebody still reads
constexpr std::optional<Duration> kRecent = std::chrono::hours(1);  ///< of old events, for those who follow
constexpr Duration kFirstPause = 200ms;                             ///< before imgd is asked again
constexpr Duration kLongestPause = 1s;

struct EventsOptions {
  std::string job;
  std::string node;
  std::optional<Duration> since;
  std::optional<uint64_t> from_event;
  bool follow = false;
  OutputFormat format = OutputFormat::kTable;
};

/// What `-o wide` says besides: " [job 7, start 2, STARTING -> RUNNING]".
std::string Particulars(const v1::Event& event) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  // The subject of a node's event is the node.
  if (event.job_id() != 0 && !event.node().empty()) add(fmt::format("job {}", event.job_id()));
  if (event.generation() != 0) add(fmt::format("start {}", event.generation()));
  if (event.from() != v1::JOB_STATE_UNSPECIFIED && event.from() != event.to())
    add(fmt::format("{} -> {}", StateName(event.from()), StateName(event.to())));
  return text.empty() ? "" : fmt::format(" [{}]", text);
}

/// Reads events and prints them; with `follow` over restarts of imgd.
class EventReader {
 public:
  EventReader(Context& context, Client& client, v1::WatchEventsRequest request, OutputFormat format)
      : context_(context), client_(client), request_(std::move(request)), format_(format) {}

  int Run() {
    while (true) {
      TellOfGap();
      const uint64_t before = request_.after_event();
      const auto ended = ReadStream();
      if (context_.interrupt().Triggered()) return context_.interrupt().ExitCode();
      if (const auto code = context_.OutputIsOver()) return *code;
      if (ended && request_.no_follow()) return 0;
      if (!ended && !IsOutage(ended.error())) return context_.Fail(ended.error());
      // A stream ends by itself from time to time, though imgd is well.
      if (!request_.no_follow()) {
        if (const auto code = AwaitDaemon()) return *code;
      } else if (request_.after_event() == before) {
        // One that brought some was too short for who reads them, as by a pager.
        return context_.Fail(ended.error());
      }
    }
  }

 private:
  /// Says which events were removed before they were read. Where only some are wanted, or none has come yet,
  /// all that was there when the last stream began counts as read.
  void TellOfGap() {
    v1::ListEventsRequest newest;
    newest.set_newest(true);
    newest.set_page_size(1);
    const auto record = client_.ListEvents(newest);
    if (!record) return;  // the stream tells why
    const bool some = request_.job_id() != 0 || !request_.node().empty() || request_.after_event() == 0;
    const uint64_t read = some ? std::max(request_.after_event(), read_) : request_.after_event();
    if (read > 0 && record->oldest_number() > read + 1) {
      context_.Say(fmt::format("events up to number {} are no longer kept", record->oldest_number() - 1),
                   Style::kWarn);
      request_.set_after_event(record->oldest_number() - 1);
    }
    for (const auto& event : record->events()) read_ = event.number();
  }

  Reply<void> ReadStream() {
    using Outcome = Stream<v1::WatchEventsResponse>::Outcome;
    const auto stream = client_.WatchEvents(request_);
    v1::WatchEventsResponse response;
    while (true) {
      const auto outcome = stream->Next(response, std::chrono::steady_clock::now() + kLookAtReader);
      if (outcome == Outcome::kEnd) return stream->Finish();
      if (outcome == Outcome::kItem) Take(response.event());
      if (context_.OutputIsOver() || context_.interrupt().Triggered()) return {};
    }
  }

  /// Until imgd answers; the exit code where it is not waited for any longer.
  std::optional<int> AwaitDaemon() {
    const Instant began = std::chrono::steady_clock::now();
    bool said = false;
    for (Duration pause = kFirstPause;; pause = std::min(pause * 3 / 2, kLongestPause)) {
      if (context_.interrupt().WaitFor(pause)) return context_.interrupt().ExitCode();
      const auto nodes = client_.ListNodes();
      if (nodes) return std::nullopt;
      if (!IsOutage(nodes.error())) return context_.Fail(nodes.error());
      if (!said) {
        context_.Say(fmt::format("{}; goes on once imgd is back", Printable(nodes.error().front().message)),
                     Style::kWarn);
        said = true;
      }
      if (context_.timeout && std::chrono::steady_clock::now() - began > *context_.timeout)
        return context_.Fail(nodes.error());
    }
  }

  void Take(const v1::Event& event) {
    if (event.number() <= request_.after_event()) return;
    request_.set_after_event(event.number());
    if (IsDocument(format_)) {
      PrintItem(context_.out(), event, format_);
    } else {
      Print(event);
    }
    context_.out().flush();
  }

  void Print(const v1::Event& event) {
    const bool wide = format_ == OutputFormat::kWide;
    const std::string number = wide ? fmt::format("{:>6}  ", event.number()) : "";
    const std::string head =
        fmt::format("{}{}  {:<10}  ", number, LocalTime(event.time_us()), Printable(SubjectOf(event)));
    const std::string word = fmt::format("{:<17}", WordOf(event));
    context_.out() << head << Paint(word, StyleOf(event), context_.terminal().color) << "  "
                   << Printable(fmt::format("{} ({})", event.text(), event.actor()))
                   << (wide ? Particulars(event) : "") << '\n';
  }

  Context& context_;
  Client& client_;
  v1::WatchEventsRequest request_;  ///< after the last event that was printed or is gone
  const OutputFormat format_;
  uint64_t read_ = 0;  ///< the newest event there was when the last stream began
};

int RunEvents(Context& context, const EventsOptions& options) {
  if (options.follow) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  // One that is away from the beginning is not waited for.
  if (options.follow) {
    if (const auto there = (*client)->ListNodes(); !there) return context.Fail(there.error());
  }
  v1::WatchEventsRequest request;
  if (!options.job.empty()) {
    auto id = FindJob(**client, options.job);
    if (!id) return context.Fail(id.error());
    // One that is not there has no events, now and ever.
    if (auto job = (*client)->GetJob(*id); !job) return context.Fail(job.error());
    request.set_job_id(*id);
  }
  if (!options.node.empty()) {
    if (auto node = (*client)->GetNode(options.node); !node) return context.Fail(node.error());
    request.set_node(options.node);
  }
  // Who follows wants to see where things stand, and not all that is kept.
  const bool all = !options.follow || options.from_event || request.job_id() != 0 || !request.node().empty();
  const std::optional<Duration> since = options.since || all ? options.since : kRecent;
  if (since) {
    request.set_since_us(NowMicros() - std::chrono::duration_cast<std::chrono::microseconds>(*since).count());
  }
  request.set_after_event(std::max<uint64_t>(options.from_event.value_or(1), 1) - 1);
  request.set_no_follow(!options.follow);
  return EventReader(context, **client, std::move(request), options.format).Run();
}

}  // namespace

std::string SubjectOf(const v1::Event& event) {
  if (!event.node().empty()) return event.node();
  return event.job_id() != 0 ? fmt::format("job {}", event.job_id()) : "";
}

std::string WordOf(const v1::Event& event) {
  const bool changes = event.to() != v1::JOB_STATE_UNSPECIFIED && event.from() != event.to();
  if (changes) return StateName(event.to());
  const std::string reason = ReasonName(event.reason());
  return reason.empty() ? "NOTE" : reason;
}

Style StyleOf(const v1::Event& event) {
  if (event.to() != v1::JOB_STATE_UNSPECIFIED && event.from() != event.to()) return StyleOf(event.to());
  switch (event.reason()) {
    case v1::REASON_CODE_NODE_LOST:
      return Style::kBad;
    case v1::REASON_CODE_NODE_SILENT:
    case v1::REASON_CODE_NODE_SICK:
    case v1::REASON_CODE_SET_ASIDE_BY_USER:
    case v1::REASON_CODE_SET_ASIDE_BY_IMGD:
    case v1::REASON_CODE_STAYS_IN_USE:
      return Style::kWarn;
    default:
      return Style::kPlain;
  }
}

void AddEventsCommand(Command app, Context& context) {
  auto options = std::make_shared<EventsOptions>();
  Command command = app.AddSubcommand("events", "Show what was decided: when, by whom and why");
  command.AddFlag("-f,--follow", options->follow,
                  "Go on with new ones, also when imgd restarts; of old ones only those of the last hour");
  command.AddOption("--job", options->job, "Only those of this job, a number or a name").ValueName("JOB");
  command.AddOption("--node", options->node, "Only those of this node and of the runs on it")
      .ValueName("NAME");
  const auto take_since = [options](const std::string& text) -> Status {
    IMGD_ASSIGN(options->since, ParseDuration(text));
    return {};
  };
  command.AddOption("--since", take_since, "Only those not older, such as 30m or 2h").ValueName("TIME");
  command.AddNumber("--from-event", "Only those from this number on (-o wide has the numbers)", 0, UINT64_MAX,
                    [options](uint64_t number) { options->from_event = number; });
  AddOutputOption(command, options->format);
  command.Footer(
      "What was placed and passed over, what went back to the queue, what is kept for whom, which nodes "
      "came,\n"
      "went and were set aside. One line for each (-o json: one JSON object). imgd keeps the newest 100,000 "
      "of at\n"
      "most 30 days (events_kept in imgd.yaml); show JOB has a job's history for ever.\n\n"
      "Examples:\n"
      "  imgcli events --since 2h\n"
      "  imgcli events -f --node gpu-3\n"
      "  imgcli events --job 12 -o json | jq -r .text");
  command.Runs([&context, options] { return RunEvents(context, *options); });
}

}  // namespace imgd::cli
