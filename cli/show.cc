#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/sheet.h"
#include "cli/watch_view.h"
#include "cli/words.h"
#include "common/job_file.h"

namespace imgd::cli {
namespace {

constexpr size_t kMostHistory = 20;  ///< changes of state that fit a screen; wide shows all

std::string RanksText(const v1::Placement& placement) {
  const uint32_t count = RanksOn(placement);
  if (count == 0) return "";
  if (count == 1) return std::to_string(placement.first_rank());
  return fmt::format("{}-{}", placement.first_rank(), placement.first_rank() + count - 1);
}

void PrintFigures(Context& context, Sheet& sheet, const v1::Job& job) {
  const auto& terminal = context.terminal();
  if (job.has_last_step()) {
    const auto& step = job.last_step();
    const double epochs = TotalEpochs(job);
    std::string progress;
    if (terminal.is_terminal) progress = Bar(DoneRatio(job).value_or(0), 24, terminal.utf8) + "  ";
    progress += ProgressText(job);
    progress += epochs > 0 ? fmt::format(", epoch {:.2f}/{:.0f}", step.epoch(), epochs)
                           : fmt::format(", epoch {:.2f}", step.epoch());
    const std::string left = TimeLeftText(step);
    if (job.state() == v1::JOB_STATE_RUNNING && !left.empty()) progress += fmt::format(", {} left", left);
    sheet.Field("progress", progress);
    std::string training = fmt::format("{}  learning rate {:.4g}", TrainingText(step), step.learning_rate());
    if (!SpeedText(step).empty())
      training += fmt::format("  waits for input {}", HumanPercent(step.input_wait_ratio()));
    sheet.Field("training", training);
  }
  sheet.Field("time", TimesText(job.last_step()));
  sheet.Field("ranks", RankSpreadText(job.last_step().ranks()));
  if (job.last_step().has_loader()) sheet.Field("loader", LoaderText(job.last_step().loader()));
  if (job.has_last_epoch()) {
    const auto& epoch = job.last_epoch();
    sheet.Field("validation",
                fmt::format("{}, loss {}, after epoch {} ({})", AccuracyText(epoch),
                            HumanLoss(epoch.val_loss()), epoch.epoch(), Count(epoch.val_images(), "image")));
  }
  if (job.has_last_checkpoint()) {
    const auto& checkpoint = job.last_checkpoint();
    sheet.Field("checkpoint", fmt::format("step {}, {}: {}", checkpoint.step(),
                                          HumanBytes(checkpoint.size_bytes()), checkpoint.path()));
  } else if (job.kind() != v1::JOB_KIND_CONVERSION) {
    sheet.Field(Trains(job) ? "checkpoints" : "folder", job.checkpoint_dir());
  }
}

/// What a job runs that does not train.
std::string ProgramText(const v1::Job& job) {
  const auto spec = ParseJobFile(job.job_yaml(), "");
  if (Trains(job) || !spec) return "";
  if (spec->kind == JobKind::kConversion) {
    const std::string name =
        spec->convert.registers.empty() ? "" : fmt::format(" (dataset:{})", spec->convert.registers);
    return fmt::format("{} to {}{}", spec->convert.source, spec->convert.target, name);
  }
  const auto& run = spec->command.run;
  const bool shell = run.size() == 3 && run[0] == "/bin/sh" && run[1] == "-c";
  return shell ? run[2] : fmt::format("{}", fmt::join(run, " "));
}

/// In the operator's currency, where there is one; empty where no price is known.
std::string CostText(Client& client, const v1::Job& job) {
  if (job.cost() <= 0) return "";
  const auto usage = client.ListUsage();
  const std::string currency = usage && !usage->currency().empty() ? " " + usage->currency() : "";
  return fmt::format(", cost {:.2f}{}", job.cost(), currency);
}

void PrintSummary(Context& context, Client& client, Sheet& sheet, const v1::GetJobResponse& response,
                  bool wide) {
  const auto& job = response.job();
  const auto& terminal = context.terminal();
  const int64_t now_us = NowMicros();
  context.out() << Paint(JobTitle(job), Style::kBold, terminal.color) << "  "
                << Paint(StateName(job.state()), StyleOf(job.state()), terminal.color) << '\n';
  sheet.Field("reason", job.reason_text());
  if (wide) sheet.Field("reason code", ReasonName(job.reason()));
  if (job.queue_position() > 0) sheet.Field("queue", fmt::format("position {}", job.queue_position()));
  if (job.state() == v1::JOB_STATE_QUEUED) {
    const std::string start = ExpectedStartText(job, now_us);
    sheet.Field("will start", start.empty() ? "nobody knows when" : "probably " + start);
  }
  if (job.has_external()) {
    sheet.Field("not managed", fmt::format("{}; imgd only hears of it, last {} ago", ByHandText(job),
                                           HumanAge(now_us, job.external().last_heard_us())));
  }
  if (!Trains(job)) sheet.Field(KindText(job.kind()), ProgramText(job));
  sheet.Field("owner", job.owner());
  sheet.Field("project", job.project());
  if (!job.has_external()) sheet.Field("priority", std::to_string(job.priority()));
  if (job.time_limit_ms() > 0)
    sheet.Field("time limit", HumanDuration(static_cast<double>(job.time_limit_ms()) / 1000));
  if (job.rerun_of() > 0) sheet.Field("made from", fmt::format("job {}", job.rerun_of()));
  sheet.Field("after", AfterText(job.after()));
  if (job.not_before_us() > 0) sheet.Field("not before", LocalTime(job.not_before_us()));
  if (job.sweep_id() > 0)
    sheet.Field("sweep", fmt::format("{}: {}", job.sweep_id(), SweepSettingsText(job.sweep_settings())));
  sheet.Field("gang", GangText(job));
  if (job.generation() > 0) {
    sheet.Field("starts", job.restarts() > 0 ? fmt::format("{} ({} after a failure)", job.generation(),
                                                           Count(job.restarts(), "restart"))
                                             : std::to_string(job.generation()));
  }
  sheet.Field("submitted", WhenText(job.submitted_us(), now_us));
  sheet.Field("started", WhenText(job.started_us(), now_us));
  sheet.Field("ended", WhenText(job.ended_us(), now_us));
  if (const double seconds = RanSeconds(response, now_us); seconds > 0) {
    sheet.Field(IsFinal(job.state()) ? "took" : "so far", HumanDuration(seconds));
  }
  if (job.device_hours() > 0) {
    sheet.Field("used", fmt::format("{:.2f} device-hours{}", job.device_hours(), CostText(client, job)));
  }
  PrintFigures(context, sheet, job);
}

void PrintPlacements(Context& context, Sheet& sheet, const v1::Job& job) {
  if (job.placements().empty()) return;
  sheet.Heading(HoldsNodes(job) ? "Runs on" : "Last ran on");
  Table table({{.title = "NODE", .shrink = true}, {"RANKS"}, {"DEVICES"}});
  for (const auto& placement : job.placements()) {
    table.Add({Cell(placement.node()), Cell(RanksText(placement)), Cell(RangesText(placement.devices()))});
  }
  table.Print(context.out(), context.terminal(), 2);
}

void PrintExits(Context& context, Sheet& sheet, const v1::Job& job) {
  if (job.rank_exits().empty()) return;
  sheet.Heading("Ranks that ended");
  Table table(
      {{"RANK", true}, {.title = "NODE", .shrink = true}, {"PID", true}, {.title = "HOW", .shrink = true}});
  for (const auto& exit : job.rank_exits()) {
    table.Add({Cell(std::to_string(exit.rank())), Cell(NodeOfRank(job, exit.rank())),
               Cell(std::to_string(exit.pid())),
               Cell(RankExitText(exit), EndedWell(exit) ? Style::kPlain : Style::kBad)});
  }
  table.Print(context.out(), context.terminal(), 2);
}

void PrintHistory(Context& context, Sheet& sheet, const v1::GetJobResponse& response, bool wide) {
  std::vector<const v1::JobEvent*> changes;
  for (const auto& event : response.history()) {
    if (event.has_state_change()) changes.push_back(&event);
  }
  if (changes.empty()) return;
  sheet.Heading("History");
  size_t first = 0;
  if (!wide && changes.size() > kMostHistory) {
    first = changes.size() - kMostHistory;
    context.out() << fmt::format("  ({} earlier changes: -o wide)\n", first);
  }
  Table table({{"TIME"},
               {"STATE"},
               {"START", true},
               {.title = "BY", .shrink = true},
               {.title = "WHY", .shrink = true}});
  for (size_t i = first; i < changes.size(); ++i) {
    const auto& change = changes[i]->state_change();
    table.Add({Cell(LocalTime(changes[i]->time_us())), Cell(StateName(change.to()), StyleOf(change.to())),
               Cell(changes[i]->generation() > 0 ? std::to_string(changes[i]->generation()) : ""),
               Cell(change.actor()), Cell(change.text())});
  }
  table.Print(context.out(), context.terminal(), 2);
}

void PrintJobFile(Context& context, Sheet& sheet, const v1::Job& job) {
  sheet.Heading("Job file");
  size_t at = 0;
  const std::string& text = job.job_yaml();
  while (at < text.size()) {
    const auto end = std::min(text.find('\n', at), text.size());
    context.out() << "  " << Printable(std::string_view(text).substr(at, end - at)) << '\n';
    at = end + 1;
  }
}

int RunShow(Context& context, const std::string& reference, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto job = GetJobOf(**client, reference);
  if (!job) return context.Fail(job.error());
  context.Warn(job->warning());
  if (format == OutputFormat::kJson || format == OutputFormat::kYaml) {
    PrintDocument(context.out(), ToJson(*job), format);
    return 0;
  }
  const bool wide = format == OutputFormat::kWide;
  Sheet sheet(context);
  PrintSummary(context, **client, sheet, *job, wide);
  PrintPlacements(context, sheet, job->job());
  PrintExits(context, sheet, job->job());
  PrintHistory(context, sheet, *job, wide);
  if (wide) PrintJobFile(context, sheet, job->job());
  return 0;
}

}  // namespace

void AddShowCommand(Command app, Context& context) {
  struct Options {
    std::string job;
    OutputFormat format = OutputFormat::kTable;
  };
  auto options = std::make_shared<Options>();
  Command command =
      app.AddSubcommand("show", "Show all about a job: why it waits, where it runs, its figures");
  AddJobArgument(command, options->job);
  AddOutputOption(command, options->format);
  command.Footer(
      "-o wide adds the job file and the whole history.\n\n"
      "Examples:\n"
      "  imgcli show 12\n"
      "  imgcli show rn18-demo -o wide\n"
      "  imgcli show 12 -o json | jq -r .job.reason_text");
  command.Runs([&context, options] { return RunShow(context, options->job, options->format); });
}

}  // namespace imgd::cli
