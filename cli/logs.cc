#include <algorithm>
#include <map>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/log_text.h"
#include "cli/serialize.h"
#include "cli/watch.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 500ms;  ///< how soon a closed output is noticed

struct LogsOptions {
  std::string job;
  bool follow = false;
  std::optional<uint32_t> rank;
  std::optional<uint64_t> generation;
  uint64_t tail = 0;
  bool attached = false;
  bool timestamps = false;
  std::string contains;
  std::string level;
  OutputFormat format = OutputFormat::kTable;

  bool searches() const { return !contains.empty() || !level.empty(); }
};

constexpr uint64_t kUsualFound = 1000;
constexpr uint64_t kMostOfPage = 10'000;
constexpr uint64_t kAttachTail = 20;

/// Writes lines, each once, however often the daemon sends it.
class LogPrinter {
 public:
  LogPrinter(Context& context, bool prefix, const LogsOptions& options)
      : context_(context), prefix_(prefix), timestamps_(options.timestamps), format_(options.format) {}

  /// ReadLogsResponse or ListLogsResponse.
  template <typename Lines>
  void Print(const Lines& lines) {
    for (const auto& line : lines.lines()) {
      uint64_t& last = last_[{line.generation(), line.rank()}];
      if (line.line_number() <= last) continue;
      last = line.line_number();
      if (printed_any() && line.generation() > generation_) {
        context_.Say(fmt::format("-- start {} --", line.generation()), Style::kDim);
      }
      generation_ = std::max(generation_, line.generation());
      Write(line);
    }
    context_.out().flush();
  }

  bool printed_any() const { return printed_any_; }
  /// The start that the newest line is of; 0 before the first line.
  uint64_t generation() const { return generation_; }

 private:
  void Write(const v1::LogLine& line) {
    printed_any_ = true;
    if (format_ != OutputFormat::kTable) return PrintItem(context_.out(), line, format_);
    auto& out = context_.out();
    const bool color = context_.terminal().color;
    if (timestamps_) out << Paint(LocalTimestamp(line.time_us()), Style::kDim, color) << ' ';
    if (prefix_) {
      out << Paint(fmt::format("[{}]", line.rank()), line.rank() % 2 == 0 ? Style::kBusy : Style::kWarn,
                   color)
          << ' ';
    }
    out << LogText(line.text(), color) << '\n';
  }

  Context& context_;
  const bool prefix_;
  const bool timestamps_;
  const OutputFormat format_;
  bool printed_any_ = false;
  uint64_t generation_ = 0;                                 ///< of the newest line
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> last_;  ///< line number by (generation, rank)
};

/// The first start after that one: not always the next number, since a restore leaves many out.
uint64_t StartAfter(const v1::GetJobResponse& job, uint64_t start) {
  uint64_t next = job.job().generation();
  for (const auto& event : job.history()) {
    if (event.generation() > start) next = std::min<uint64_t>(next, event.generation());
  }
  return next;
}

/// Reads a job's log, over restarts of the daemon where it follows.
class LogReader {
 public:
  LogReader(Context& context, Client& client, const v1::Job& job, const LogsOptions& options)
      : context_(context),
        client_(client),
        job_(job),
        options_(options),
        printer_(context, MostRanks(job) > 1 && !options.rank, options),
        start_(std::max<uint64_t>(job.generation(), 1)) {}

  int Run() {
    uint64_t tail = options_.tail;
    while (true) {
      const bool was_final = IsFinal(job_.state());
      // A start that others followed in an outage is read to its end, before the latest one is followed.
      const bool old_start = !options_.generation && start_ < job_.generation();
      auto ended = old_start ? ReadStream(start_, false, tail)
                             : ReadStream(options_.generation, options_.follow, tail);
      if (context_.interrupt().Triggered()) return Interrupted();
      if (const auto code = context_.OutputIsOver()) return *code;
      if (!options_.follow) return ended ? Done() : context_.Fail(ended.error());
      if (ended && was_final && !old_start) return Done();
      if (!ended && !IsOutage(ended.error())) return context_.Fail(ended.error());
      // Before the job is asked for, so that its answer is new when the next stream begins.
      if (!ended) context_.interrupt().WaitFor(200ms);
      auto now = AwaitDaemon(context_, client_, job_.id(), [&](const Errors& errors) {
        context_.Say(fmt::format("{}; the log goes on once imgd is back", errors.front().message),
                     Style::kWarn);
      });
      if (context_.interrupt().Triggered()) return Interrupted();
      if (!now) return context_.Fail(now.error());
      job_ = now->job();
      start_ = ended && old_start ? StartAfter(*now, start_) : std::max(start_, printer_.generation());
      // A stream that ended well just before the job did, or the start that is asked for, is complete; one
      // that broke is read again.
      const bool over =
          IsFinal(job_.state()) || (options_.generation && *options_.generation < job_.generation());
      if (ended && !old_start && over) return Done();
      // From here on the numbers tell what is new; a tail could leave a gap.
      if (printer_.printed_any() || old_start) tail = 0;
    }
  }

 private:
  /// `generation`: the only start whose lines are read; without one they are the latest's and later ones'.
  Reply<void> ReadStream(std::optional<uint64_t> generation, bool follow, uint64_t tail) {
    v1::ReadLogsRequest request;
    request.set_id(job_.id());
    if (options_.rank) request.set_rank(*options_.rank);
    if (generation) request.set_generation(*generation);
    request.set_tail(tail);
    request.set_follow(follow);
    // Once: where it comes back after an outage it is attached already.
    request.set_attached(options_.attached && follow && !printer_.printed_any());
    if (request.attached()) request.set_actor(OwnerName(context_.env()));
    const auto stream = client_.ReadLogs(request);
    v1::ReadLogsResponse lines;
    Instant idle_until = std::chrono::steady_clock::now() + client_.timeout();
    while (!context_.OutputIsOver()) {
      const Instant now = std::chrono::steady_clock::now();
      switch (stream->Next(lines, now + kTick)) {
        case Stream<v1::ReadLogsResponse>::Outcome::kItem:
          printer_.Print(lines);
          idle_until = std::chrono::steady_clock::now() + client_.timeout();
          break;
        case Stream<v1::ReadLogsResponse>::Outcome::kIdle:
          if (follow || now < idle_until) break;
          return tl::unexpected(
              Errors{Error{.code = ErrorCode::kDeadlineExceeded,
                           .message = fmt::format("imgd at {} ({}) stopped sending in the middle of the log",
                                                  client_.address().target, client_.address().source)}});
        case Stream<v1::ReadLogsResponse>::Outcome::kEnd:
          return stream->Finish();
      }
    }
    return {};
  }

  int Done() {
    if (!printer_.printed_any()) {
      const bool filtered = options_.rank || options_.generation;
      const bool over = IsFinal(job_.state());
      const std::string why = job_.reason_text().empty() ? "" : fmt::format(": {}", job_.reason_text());
      context_.Say(fmt::format("{} has no {}log lines{}; it is {}{}", JobTitle(job_), filtered ? "such " : "",
                               over ? "" : " yet", StateName(job_.state()), why));
    }
    return 0;
  }

  int Interrupted() {
    context_.Say(
        options_.follow && !IsFinal(job_.state())
            ? fmt::format("no longer following; {} goes on ({})", JobTitle(job_), HowToEnd(context_, job_))
            : "interrupted");
    return context_.interrupt().ExitCode();
  }

  Context& context_;
  Client& client_;
  v1::Job job_;
  const LogsOptions& options_;
  LogPrinter printer_;
  uint64_t start_;  ///< the one that is read, as far as its lines tell; nothing is left of earlier ones
};

constexpr std::pair<const char*, v1::LogLevel> kLevels[] = {{"debug", v1::LOG_LEVEL_DEBUG},
                                                            {"info", v1::LOG_LEVEL_INFO},
                                                            {"warning", v1::LOG_LEVEL_WARNING},
                                                            {"error", v1::LOG_LEVEL_ERROR}};

v1::LogLevel LevelNamed(const std::string& name) {
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  return v1::LOG_LEVEL_UNSPECIFIED;
}

/// Prints the newest lines that are like what is looked for; imgd looks for them.
int SearchLogs(Context& context, Client& client, const v1::Job& job, const LogsOptions& options) {
  const uint64_t wanted = options.tail == 0 ? kUsualFound : options.tail;
  v1::ListLogsRequest request;
  request.set_id(job.id());
  if (options.rank) request.set_rank(*options.rank);
  if (options.generation) request.set_generation(*options.generation);
  request.set_contains(options.contains);
  request.set_level(LevelNamed(options.level));
  std::vector<v1::ListLogsResponse> pages;
  uint64_t found = 0;
  bool more = true;
  while (more && found < wanted && !context.interrupt().Triggered()) {
    request.set_tail(static_cast<uint32_t>(std::min(wanted - found, kMostOfPage)));
    auto page = client.ListLogs(request);
    if (!page) return context.Fail(page.error());
    found += static_cast<uint64_t>(page->lines_size());
    more = !page->previous().empty();
    request.set_before(page->previous());
    pages.push_back(std::move(*page));
  }
  LogPrinter printer(context, MostRanks(job) > 1 && !options.rank, options);
  std::for_each(pages.rbegin(), pages.rend(), [&printer](const auto& page) { printer.Print(page); });
  if (found == 0) context.Say(fmt::format("no line of {} is like that", JobTitle(job)));
  if (more && found > 0)
    context.Say("older lines like that are left out; --tail N shows N of each rank", Style::kDim);
  return 0;
}

std::optional<Error> CheckRange(const v1::Job& job, const LogsOptions& options) {
  const uint32_t world = MostRanks(job);
  Error error{.code = ErrorCode::kNotFound};
  if (options.rank && *options.rank >= world) {
    error.message = fmt::format("{} has no rank {}; it has {}", JobTitle(job), *options.rank,
                                world == 1 ? "only rank 0" : fmt::format("ranks 0 to {}", world - 1));
    return error;
  }
  if (options.generation && (*options.generation > job.generation() || *options.generation == 0)) {
    error.message = fmt::format(
        "{} has no start {}; {}", JobTitle(job), *options.generation,
        job.generation() == 0 ? "it has not started yet" : fmt::format("its latest is {}", job.generation()));
    return error;
  }
  return std::nullopt;
}

int RunLogs(Context& context, const LogsOptions& options) {
  if (options.follow && options.searches()) {
    return context.Fail({Error{.code = ErrorCode::kInvalidArgument,
                               .message = "--follow shows every line; pipe it to grep to follow some"}});
  }
  context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto id = FindJob(**client, options.job);
  if (!id) return context.Fail(id.error());
  auto job = (*client)->GetJob(*id);
  if (!job) return context.Fail(job.error());
  if (auto error = CheckRange(job->job(), options)) return context.Fail({*error});
  if (job->job().has_external()) {
    context.Say(
        fmt::format("{} was {}: here are its notes and its last error; the rest of its output is there",
                    JobTitle(job->job()), ByHandText(job->job())),
        Style::kDim);
  }
  if (options.searches()) return SearchLogs(context, **client, job->job(), options);
  return LogReader(context, **client, job->job(), options).Run();
}

/// `imgcli attach`: the last lines and what follows, and how it ended.
int RunAttach(Context& context, const LogsOptions& options) {
  context.FollowSession();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto id = FindJob(**client, options.job);
  if (!id) return context.Fail(id.error());
  auto job = (*client)->GetJob(*id);
  if (!job) return context.Fail(job.error());
  if (auto error = CheckRange(job->job(), options)) return context.Fail({*error});
  if (!IsFinal(job->job().state())) {
    const auto& reason = job->job().reason_text();
    context.Say(fmt::format("attached to {}, {}{}; Ctrl-C leaves it alone", JobTitle(job->job()),
                            StateName(job->job().state()), reason.empty() ? "" : ": " + Printable(reason)),
                Style::kDim);
  }
  const int followed = LogReader(context, **client, job->job(), options).Run();
  if (followed != 0 || context.interrupt().Triggered()) return followed;
  return FollowJob(context, **client, *id, {.quiet = true});
}

}  // namespace

void AddAttachCommand(Command app, Context& context) {
  auto options = std::make_shared<LogsOptions>();
  options->follow = true;
  options->attached = true;
  options->tail = kAttachTail;
  Command command = app.AddSubcommand("attach", "Live output of a job, to its end");
  AddJobArgument(command, options->job);
  command.AddNumber("--rank", "Only this rank (default: all, each line with its rank)", 0, UINT32_MAX,
                    [options](uint64_t rank) { options->rank = static_cast<uint32_t>(rank); });
  command.AddNumber("--tail", "So many of the last lines of each rank first (default: 20)", 1, 1'000'000'000,
                    [options](uint64_t lines) { options->tail = lines; });
  command.Footer(
      "As logs -f, from the last lines on, over the job's later starts and over restarts of imgd, and with "
      "an\n"
      "exit code that says how the job ended, as wait's. Ctrl-C detaches; the job goes on.\n\n"
      "Examples:\n"
      "  imgcli attach 12\n"
      "  imgcli attach rn50-90ep --rank 0");
  command.Runs([&context, options] { return RunAttach(context, *options); });
}

void AddLogsCommand(Command app, Context& context) {
  auto options = std::make_shared<LogsOptions>();
  Command command = app.AddSubcommand("logs", "Print what a job's ranks wrote");
  AddJobArgument(command, options->job);
  command.AddFlag("-f,--follow", options->follow, "Go on with new lines until the job has ended");
  command.AddNumber("--rank", "Only this rank (default: all, each line with its rank)", 0, UINT32_MAX,
                    [options](uint64_t rank) { options->rank = static_cast<uint32_t>(rank); });
  command.AddNumber("--tail", "Only the last N lines of each rank, and new ones", 1, 1'000'000'000,
                    [options](uint64_t lines) { options->tail = lines; });
  command.AddNumber("--generation", "Lines of this start of the job (default: the latest)", 1, UINT64_MAX,
                    [options](uint64_t generation) { options->generation = generation; });
  command
      .AddOption("--contains", options->contains, "Only lines with this text, capital or small letters alike")
      .ValueName("TEXT");
  command.AddOption("--level", options->level, "Only lines that are so grave or graver")
      .OneOf({"debug", "info", "warning", "error"});
  command.AddFlag("--timestamps", options->timestamps, "When each line was written, in local time");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "-o json gives one JSON object a line, -o yaml one document for each line.\n"
      "Goes on when imgd restarts, without doubled lines. Ctrl-C ends the following, not the job.\n\n"
      "Examples:\n"
      "  imgcli logs 12 --tail 50\n"
      "  imgcli logs rn18-demo -f --rank 0\n"
      "  imgcli logs 12 --contains nan --level warning\n"
      "  imgcli logs 12 --generation 1 --timestamps > before-the-restart.log");
  command.Runs([&context, options] { return RunLogs(context, *options); });
}

}  // namespace imgd::cli
