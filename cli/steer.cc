#include <charconv>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/words.h"

/// What is asked of jobs that have not ended: pause, resume, move, priority, extend.
namespace imgd::cli {
namespace {

constexpr Duration kLookAtPause = std::chrono::milliseconds(500);

struct SteerOptions {
  std::vector<std::string> jobs;
  bool wait = false;
  OutputFormat format = OutputFormat::kTable;
};

/// Makes the request to one of the jobs named. With `wait` a job that is paused already, or is being paused,
/// is no refusal: a wait that was broken off is taken up again.
Reply<v1::Job> ChangeOne(Context& context, Client& client, const std::string& reference,
                         v1::ChangeJobRequest request, bool wait) {
  auto id = FindJob(client, reference);
  if (!id) return tl::unexpected(std::move(id).error());
  request.set_id(*id);
  request.set_actor(OwnerName(context.env()));
  auto answer = client.ChangeJob(request);
  if (answer) return std::move(*answer->mutable_job());
  if (wait && answer.error().front().code == ErrorCode::kFailedPrecondition) {
    auto now = client.GetJob(*id);
    if (now && now->job().reason() == v1::REASON_CODE_PAUSED_BY_USER) return std::move(*now->mutable_job());
  }
  return tl::unexpected(std::move(answer).error());
}

/// Until the job, which is kept up to date, holds no devices. The exit code: 0 only if it then is paused, 6
/// or 7 where it failed or was cancelled.
int WaitUntilPaused(Context& context, Client& client, v1::Job& job) {
  while (job.state() != v1::JOB_STATE_PAUSED) {
    if (IsFinal(job.state()) || job.state() == v1::JOB_STATE_QUEUED) {
      context.Say(
          Printable(fmt::format("{} is {}: {}", JobTitle(job), StateName(job.state()), job.reason_text())),
          Style::kWarn);
      const int code = ExitCodeOfState(job.state());
      return code != 0 ? code : ExitCodeOf(ErrorCode::kFailedPrecondition);
    }
    if (context.interrupt().WaitFor(kLookAtPause)) return context.interrupt().ExitCode();
    auto now = client.GetJob(job.id());
    if (!now) return context.Fail(now.error());
    job = std::move(*now->mutable_job());
  }
  return 0;
}

/// The same request to each of the jobs, all before any is waited for. Goes on where one refuses; the exit
/// code is the first failure's.
int ChangeAll(Context& context, const SteerOptions& options, const v1::ChangeJobRequest& request,
              const std::function<std::string(const v1::Job&)>& said) {
  if (options.wait) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto say = [&](const v1::Job& job) {
    if (IsDocument(options.format)) return;
    context.out() << Printable(fmt::format("{} {}", JobTitle(job), said(job))) << '\n';
  };
  std::vector<v1::Job> asked;
  int exit_code = 0;
  const auto note = [&exit_code](int code) {
    if (exit_code == 0) exit_code = code;
  };
  for (const auto& reference : options.jobs) {
    if (context.interrupt().Triggered()) break;
    auto job = ChangeOne(context, **client, reference, request, options.wait);
    if (!job) {
      note(context.Fail(job.error()));
      continue;
    }
    if (!options.wait || job->state() != v1::JOB_STATE_PAUSED) say(*job);
    asked.push_back(std::move(*job));
  }
  if (options.wait) {
    for (auto& job : asked) {
      const int code = WaitUntilPaused(context, **client, job);
      if (code == 0) say(job);
      note(code);
      if (context.interrupt().Triggered()) break;
    }
  }
  if (IsDocument(options.format) && !asked.empty()) {
    const auto list = ToJsonArray(asked);
    PrintDocument(context.out(), options.jobs.size() == 1 ? list[0] : list, options.format);
  }
  return exit_code;
}

/// "is PAUSED: paused by lena while it waited".
std::string StateText(const v1::Job& job) {
  return fmt::format("is {}: {}", StateName(job.state()), job.reason_text());
}

std::shared_ptr<SteerOptions> AddJobsTo(Command command) {
  auto options = std::make_shared<SteerOptions>();
  command.AddOption("JOB", options->jobs, "Numbers of the jobs, or their names").Required().ValueName("");
  AddOutputOption(command, options->format, kPlainFormats);
  return options;
}

std::shared_ptr<SteerOptions> AddJobTo(Command command) {
  auto options = std::make_shared<SteerOptions>();
  options->jobs.resize(1);
  AddJobArgument(command, options->jobs.front());
  AddOutputOption(command, options->format, kPlainFormats);
  return options;
}

Result<int32_t> ParsePriority(const std::string& text) {
  int32_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= -1000 && value <= 1000) return value;
  return Fail(ErrorCode::kInvalidArgument, "found '{}'; a whole number from -1000 to 1000 is expected", text);
}

/// How the time limit is to change: one of the three.
struct ExtendOptions {
  std::optional<Duration> more;
  std::optional<Duration> less;
  std::optional<std::string> to;
};

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

Result<v1::ChangeJobRequest> ExtendRequest(const ExtendOptions& options) {
  v1::ChangeJobRequest request;
  const int given = options.more.has_value() + options.less.has_value() + options.to.has_value();
  if (given != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "one of TIME (so much longer), --less and --to is needed; found {}", given);
  }
  if (options.more) request.set_more_time_ms(Milliseconds(*options.more));
  if (options.less) request.set_more_time_ms(-Milliseconds(*options.less));
  if (options.to && *options.to == "none") {
    request.set_time_limit_ms(0);
  } else if (options.to) {
    const auto time = ParseDuration(*options.to);
    if (!time) return Fail(ErrorCode::kInvalidArgument, "--to: {}; or none", time.error().message);
    request.set_time_limit_ms(Milliseconds(*time));
  }
  return request;
}

std::string TimeLimitText(const v1::Job& job) {
  if (job.time_limit_ms() == 0) return "has no time_limit: it may run for ever";
  return fmt::format("has a time_limit of {}, over all its starts",
                     HumanDuration(static_cast<double>(job.time_limit_ms()) / 1000));
}

std::function<Status(const std::string&)> TakeTime(std::optional<Duration>* into) {
  return [into](const std::string& text) -> Status {
    IMGD_ASSIGN(*into, ParseDuration(text));
    return {};
  };
}

}  // namespace

void AddPauseCommand(Command app, Context& context) {
  Command command =
      app.AddSubcommand("pause", "Stop jobs through a checkpoint, to go on later; their devices are freed");
  auto options = AddJobsTo(command);
  command.AddFlag("--wait", options->wait, "Wait until they are PAUSED and hold no devices");
  command.Footer(
      "A job that waits is paused at once. Ranks that write no checkpoint within the job's grace time are\n"
      "ended without one; show JOB then says how many steps are lost. Nothing of it counts as a failure.\n\n"
      "Examples:\n"
      "  imgcli pause 12\n"
      "  imgcli pause rn50-90ep --wait && imgcli resume rn50-90ep");
  command.Runs([&context, options] {
    v1::ChangeJobRequest request;
    request.mutable_pause();
    return ChangeAll(context, *options, request, StateText);
  });
}

void AddResumeCommand(Command app, Context& context) {
  Command command = app.AddSubcommand("resume", "Let paused jobs go on, from their checkpoints");
  auto options = AddJobsTo(command);
  command.Footer("They get their old place in the queue.\n\nExamples:\n  imgcli resume 12");
  command.Runs([&context, options] {
    v1::ChangeJobRequest request;
    request.mutable_resume();
    return ChangeAll(context, *options, request, StateText);
  });
}

void AddMoveCommand(Command app, Context& context) {
  Command command =
      app.AddSubcommand("move", "Take a job off its nodes, through a checkpoint, and start it on others");
  auto options = AddJobTo(command);
  command.Footer(
      "Its nodes are avoided for its next start only; where no other nodes could hold it, this is refused. "
      "It\n"
      "waits where they are busy: pause and resume then let it go anywhere again.\n\n"
      "Examples:\n"
      "  imgcli move 12");
  command.Runs([&context, options] {
    v1::ChangeJobRequest request;
    request.mutable_move();
    return ChangeAll(context, *options, request, StateText);
  });
}

void AddPriorityCommand(Command app, Context& context) {
  Command command = app.AddSubcommand("priority", "Change a job's priority");
  auto options = AddJobTo(command);
  auto priority = std::make_shared<int32_t>();
  const auto take = [priority](const std::string& text) -> Status {
    IMGD_ASSIGN(*priority, ParsePriority(text));
    return {};
  };
  command.AddOption("N", take, "The new one, from -1000 to 1000; higher goes first").Required().ValueName("");
  command.Footer(
      "Of a job that runs it counts when it waits the next time.\n\n"
      "Examples:\n"
      "  imgcli priority 12 50\n"
      "  imgcli priority 12 -- -5");
  command.Runs([&context, options, priority] {
    v1::ChangeJobRequest request;
    request.set_priority(*priority);
    return ChangeAll(context, *options, request,
                     [](const v1::Job& job) { return fmt::format("has priority {}", job.priority()); });
  });
}

void AddExtendCommand(Command app, Context& context) {
  Command command = app.AddSubcommand("extend", "Make a job's time_limit longer, or shorter");
  auto options = AddJobTo(command);
  auto times = std::make_shared<ExtendOptions>();
  command.AddOption("TIME", TakeTime(&times->more), "So much longer, such as 90m or 2h").ValueName("");
  command.AddOption("--less", TakeTime(&times->less), "So much shorter").ValueName("TIME");
  command.AddOption("--to", times->to, "The limit itself, over all its starts; none for no limit")
      .ValueName("TIME");
  command.Footer(
      "Examples:\n"
      "  imgcli extend 12 2h\n"
      "  imgcli extend 12 --to 36h");
  command.Runs([&context, options, times] {
    const auto request = ExtendRequest(*times);
    if (!request) return context.Fail({request.error()});
    return ChangeAll(context, *options, *request, TimeLimitText);
  });
}

}  // namespace imgd::cli
