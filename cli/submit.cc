#include <algorithm>
#include <iterator>
#include <random>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_text.h"
#include "cli/serialize.h"
#include "cli/sweep_ref.h"
#include "cli/watch.h"
#include "cli/words.h"
#include "common/utf8.h"

namespace imgd::cli {
namespace {

struct SubmitOptions {
  std::string file;
  std::vector<std::string> sets;
  std::optional<std::string> name;
  std::optional<std::string> key;
  std::vector<std::string> after;
  std::optional<std::string> not_before;
  bool watch = false;
  bool dry_run = false;
  OutputFormat format = OutputFormat::kTable;
};

void PrintStoredSweep(Context& context, const v1::SubmitJobResponse& answer) {
  const auto& sweep = answer.sweep();
  const std::string numbers =
      sweep.members() == 1 ? fmt::format("job {}", sweep.id())
                           : fmt::format("jobs {} to {}", sweep.id(), sweep.id() + sweep.members() - 1);
  context.out() << fmt::format(
      "{} {}: {}, {}\n", SweepTitle(sweep),
      answer.existed() ? "was submitted before with this idempotency key" : "submitted",
      Count(sweep.members(), "job"), numbers);
  for (const auto& warning : answer.warnings())
    context.Say(fmt::format("warning: {}", warning), Style::kWarn);
  context.Say(fmt::format("see it: {}   end it: {}", context.Suggest(fmt::format("sweep {}", sweep.id())),
                          context.Suggest(fmt::format("cancel --sweep {}", sweep.id()))),
              Style::kDim);
}

void PrintStored(Context& context, const v1::SubmitJobResponse& answer, bool hints) {
  if (answer.has_sweep()) return PrintStoredSweep(context, answer);
  const auto& job = answer.job();
  if (answer.existed()) {
    context.out() << JobTitle(job) << " was submitted before with this idempotency key\n";
  } else {
    context.out() << JobTitle(job) << " submitted\n";
  }
  for (const auto& warning : answer.warnings())
    context.Say(fmt::format("warning: {}", warning), Style::kWarn);
  if (hints) {
    context.Say(fmt::format("follow it: {}   its output: {}   end it: {}",
                            context.Suggest(fmt::format("watch {}", job.id())),
                            context.Suggest(fmt::format("logs {} -f", job.id())),
                            context.Suggest(fmt::format("cancel {}", job.id()))),
                Style::kDim);
  }
}

/// The job, and beside its fields what the answer says of it.
nlohmann::ordered_json AnswerDocument(const v1::SubmitJobResponse& answer, bool dry_run) {
  auto document = ToJson(answer.job());
  document["warnings"] = nlohmann::ordered_json::array();
  for (const auto& warning : answer.warnings()) document["warnings"].push_back(warning);
  document["existed"] = answer.existed();
  if (dry_run) document["cannot_start"] = answer.cannot_start();
  if (answer.has_sweep()) {
    document["sweep"] = ToJson(answer.sweep());
    document["settings"] = ToJsonArray(answer.settings());
  }
  return document;
}

/// What the jobs of a sweep would differ in.
void PrintDrySweep(Context& context, const v1::SubmitJobResponse& answer) {
  const auto& sweep = answer.sweep();
  context.out() << fmt::format(
      "{} is fine; nothing was submitted ({} of {} with {} each{})\n", Printable(sweep.name()),
      Count(sweep.members(), "job"), Count(answer.job().nodes(), "node"),
      Count(answer.job().ranks_per_node(), "rank"),
      sweep.max_running() > 0 ? fmt::format(", at most {} at once", sweep.max_running()) : "");
  for (int i = 0; i < answer.settings_size(); ++i) {
    context.out() << fmt::format("  {}[{}]  {}\n", Printable(sweep.name()), i + 1,
                                 SweepSettingsText(answer.settings(i).settings()));
  }
  if (static_cast<int>(sweep.members()) > answer.settings_size())
    context.out() << fmt::format("  and {} more\n",
                                 static_cast<int>(sweep.members()) - answer.settings_size());
}

void PrintDryRun(Context& context, const v1::SubmitJobResponse& answer) {
  const auto& job = answer.job();
  if (answer.has_sweep()) {
    PrintDrySweep(context, answer);
  } else {
    const std::string kind = Trains(job) ? "" : fmt::format("a {}; ", KindText(job.kind()));
    context.out() << fmt::format("{} is fine; nothing was submitted ({}it needs {})\n", Printable(job.name()),
                                 kind, GangText(job));
  }
  auto open = job.after();
  open.erase(std::remove_if(open.begin(), open.end(),
                            [](const auto& one) { return one.ended() != v1::JOB_STATE_UNSPECIFIED; }),
             open.end());
  if (!open.empty()) context.out() << fmt::format("it would wait for {}\n", AfterText(open));
  if (job.not_before_us() > NowMicros())
    context.out() << fmt::format("it would not start before {}\n", LocalTime(job.not_before_us()));
  // Of a sweep the daemon looks at the first job.
  const std::string_view whose = answer.has_sweep() ? "its first job: " : "";
  if (!job.reason_text().empty()) context.out() << whose << Printable(job.reason_text()) << '\n';
  if (job.reason() != v1::REASON_CODE_PLACED) {
    if (const auto start = ExpectedStartText(job, NowMicros()); !start.empty())
      context.out() << fmt::format("{}it would probably start {}\n", whose, start);
  }
  for (const auto& warning : answer.warnings())
    context.Say(fmt::format("warning: {}", warning), Style::kWarn);
}

v1::SubmitJobRequest MakeRequest(const Context& context, const SubmitOptions& options, const JobText& text) {
  v1::SubmitJobRequest request;
  request.set_job_yaml(text.yaml);
  request.set_file_name(text.file);
  request.set_dry_run(options.dry_run);
  request.set_owner(OwnerName(context.env()));
  request.set_idempotency_key(options.key ? *options.key : NewSubmitKey());
  return request;
}

int FailSubmit(Context& context, Errors errors, const v1::SubmitJobRequest& request) {
  if (IsOutage(errors) && !request.dry_run()) {
    // It may have been stored just before the connection broke; the key makes sure.
    errors.front().hint +=
        fmt::format("; to try again without the risk of a second job, add --idempotency-key {}",
                    request.idempotency_key());
  }
  return context.Fail(errors);
}

/// `--after JOB:WHEN`, `--not-before TIME`, as what they change in the file.
Reply<std::vector<JobChange>> WaitChanges(const SubmitOptions& options) {
  std::vector<JobChange> changes;
  if (options.not_before) {
    changes.push_back({.assignment = "not_before=" + YamlText(*options.not_before),
                       .shown = fmt::format("--not-before {}", *options.not_before)});
  }
  std::string list, shown;
  for (const auto& text : options.after) {
    const auto colon = text.rfind(':');
    const std::string job = text.substr(0, colon);
    const std::string when = colon == std::string::npos ? "ok" : text.substr(colon + 1);
    if (job.empty() || (when != "ok" && when != "any" && when != "failed")) {
      return tl::unexpected(Errors{Error{
          .code = ErrorCode::kInvalidArgument,
          .message = fmt::format("--after: found '{}' where JOB, JOB:ok, JOB:any or JOB:failed is expected",
                                 ToUtf8(text))}});
    }
    list += fmt::format("{}{{job: {}, when: {}}}", list.empty() ? "" : ", ", YamlText(job), when);
    shown += fmt::format("{}--after {}", shown.empty() ? "" : " ", text);
  }
  if (!list.empty()) changes.push_back({.assignment = fmt::format("after=[{}]", list), .shown = shown});
  return changes;
}

int RunSubmit(Context& context, const SubmitOptions& options) {
  if (options.watch && (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml)) {
    return context.Fail({Error{.code = ErrorCode::kInvalidArgument,
                               .message = "--watch and --output json or yaml exclude each other",
                               .hint = "submit with -o json, then imgcli watch JOB -o json"}});
  }
  if (options.key && (options.key->empty() || FindInvalidUtf8(*options.key))) {
    return context.Fail(
        {Error{.code = ErrorCode::kInvalidArgument,
               .message = fmt::format("--idempotency-key: found '{}' where text in UTF-8 is expected",
                                      ToUtf8(*options.key))}});
  }
  if (options.watch) context.FollowUntilInterrupted();
  const auto waits = WaitChanges(options);
  if (!waits) return context.Fail(waits.error());
  auto text = ReadJobText(options.file, context.in(), options.sets, options.name, *waits);
  if (!text) return context.Fail(text.error());
  auto client = context.client();
  if (!client) return context.Fail(client.error());

  // To check and store a job of a sweep takes a millisecond or two.
  if (!context.timeout)
    (*client)->set_timeout((*client)->timeout() + std::chrono::milliseconds(5 * text->jobs));
  const auto request = MakeRequest(context, options, *text);
  auto answer = (*client)->SubmitJob(request, [&] {
    context.Say(fmt::format("imgd at {} does not answer; trying for {} in all", (*client)->address().target,
                            HumanDuration(std::chrono::duration<double>((*client)->timeout()).count())),
                Style::kWarn);
  });
  if (!answer) return FailSubmit(context, PlaceErrors(std::move(answer).error(), *text), request);
  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    PrintDocument(context.out(), AnswerDocument(*answer, options.dry_run), options.format);
    return 0;
  }
  if (options.dry_run) {
    PrintDryRun(context, *answer);
    return 0;
  }
  PrintStored(context, *answer, !options.watch);
  if (!options.watch) return 0;
  if (answer->has_sweep()) return FollowSweep(context, **client, answer->sweep(), /*ending=*/false);
  return FollowJob(context, **client, answer->job().id(), {.from_event = 1});
}

}  // namespace

std::string NewSubmitKey() {
  std::random_device random;
  std::string key = "imgcli-";
  for (int i = 0; i < 4; ++i) key += fmt::format("{:08x}", random());
  return key;
}

void AddSubmitCommand(Command app, Context& context) {
  auto options = std::make_shared<SubmitOptions>();
  Command command = app.AddSubcommand("submit", "Submit a job");
  command
      .AddOption("FILE", options->file,
                 "The job file; - reads it from standard input, recipe:NAME takes a ready one")
      .Required()
      .ValueName("");
  command.AddFlag("--watch", options->watch, "Follow the job until it has ended, as imgcli watch does");
  command.AddOption("--set", options->sets, "Change a field of the file for this job; may be repeated")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  command.AddOption("--name", options->name, "Name of the job, instead of the file's").ValueName("NAME");
  command
      .AddOption(
          "--after", options->after,
          "Start after this job, by number or name, has completed; JOB:any: has ended; JOB:failed: has "
          "failed; may be repeated; instead of the file's")
      .ValueName("JOB[:WHEN]")
      .OneValueEach();
  command
      .AddOption("--not-before", options->not_before,
                 "Start at this time or later: 2026-12-01T02:00:00Z, or 8h from now")
      .ValueName("TIME");
  command.AddFlag("--dry-run", options->dry_run, "Check only: nothing is stored");
  command
      .AddOption("--idempotency-key", options->key,
                 "The same key stores the same job once, however often it is sent (default: a new one)")
      .ValueName("KEY");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "The file is checked here first: every error is named with its line, column and field.\n"
      "While imgd restarts, the job is sent again until --timeout, and stored once.\n\n"
      "Examples:\n"
      "  imgcli submit job.yaml --watch\n"
      "  imgcli submit job.yaml --set train.epochs=5 --set optimizer.lr=0.4 --name rn50-short\n"
      "  sed s/resnet18/resnet50/ job.yaml | imgcli submit -\n"
      "  imgcli submit recipe:rn50-90ep --set data.train=/data/train --set data.val=/data/val\n"
      "  imgcli submit job.yaml --after 12 --after rn50-pre:any --not-before 2026-12-01T02:00:00Z\n"
      "  imgcli submit job.yaml -o json | jq -r .id");
  command.Runs([&context, options] { return RunSubmit(context, *options); });
}

}  // namespace imgd::cli
