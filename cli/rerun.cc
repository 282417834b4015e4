#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/job_text.h"
#include "cli/serialize.h"
#include "cli/watch.h"
#include "cli/words.h"
#include "common/setting_diff.h"

namespace imgd::cli {
namespace {

struct RerunOptions {
  std::string job;
  std::vector<std::string> sets;
  std::optional<std::string> name;
  bool watch = false;
  OutputFormat format = OutputFormat::kTable;
};

/// "optimizer.lr: 0.4 -> 0.2".
std::string DifferenceText(const Difference& difference) {
  const auto value = [](const std::string& text) { return text.empty() ? "(not set)" : text; };
  return Printable(fmt::format("{}: {} -> {}", difference.name, value(difference.a), value(difference.b)));
}

Errors StartedByHandError(const v1::Job& job) {
  return {Error{
      .code = ErrorCode::kFailedPrecondition,
      .message = fmt::format("{} was {}; its file is not made for imgd", JobTitle(job), ByHandText(job)),
      .hint = fmt::format("imgcli show {} -o wide prints it; submit what you make of it", job.id())}};
}

int PrintRerun(Context& context, const RerunOptions& options, const v1::Job& old,
               const v1::SubmitJobResponse& answer) {
  const auto changes =
      SettingsThatDiffer(SettingsOfYaml(old.job_yaml()), SettingsOfYaml(answer.job().job_yaml()));
  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    auto document = ToJson(answer.job());
    document["changes"] = nlohmann::ordered_json::array();
    for (const auto& [name, before, after] : changes)
      document["changes"].push_back({{"name", name}, {"before", before}, {"after", after}});
    PrintDocument(context.out(), document, options.format);
    return 0;
  }
  context.out() << fmt::format("{} submitted, made from {}{}\n", JobTitle(answer.job()), JobTitle(old),
                               changes.empty() ? "; nothing is different" : ":");
  for (const auto& change : changes) context.out() << "  " << DifferenceText(change) << '\n';
  for (const auto& warning : answer.warnings())
    context.Say(fmt::format("warning: {}", warning), Style::kWarn);
  return 0;
}

int RunRerun(Context& context, const RerunOptions& options) {
  if (options.watch && IsDocument(options.format)) {
    return context.Fail({Error{.code = ErrorCode::kInvalidArgument,
                               .message = "--watch and --output json or yaml exclude each other",
                               .hint = "rerun with -o json, then imgcli watch JOB -o json"}});
  }
  if (options.watch) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto old = GetJobOf(**client, options.job);
  if (!old) return context.Fail(old.error());
  if (old->job().has_external()) return context.Fail(StartedByHandError(old->job()));
  const uint64_t id = old->job().id();
  auto text = ChangeJobTextOf(old->job().job_yaml(), fmt::format("job {}", id), options.sets, options.name);
  if (!text) return context.Fail(text.error());
  v1::SubmitJobRequest request;
  request.set_job_yaml(text->yaml);
  request.set_file_name(text->file);
  request.set_owner(OwnerName(context.env()));
  request.set_idempotency_key(NewSubmitKey());
  request.set_rerun_of(id);
  auto answer = (*client)->SubmitJob(request, [&] {
    context.Say(fmt::format("imgd at {} does not answer; trying again", (*client)->address().target),
                Style::kWarn);
  });
  if (!answer) return context.Fail(PlaceErrors(std::move(answer).error(), *text));
  const int code = PrintRerun(context, options, old->job(), *answer);
  if (!options.watch) return code;
  return FollowJob(context, **client, answer->job().id(), {.from_event = 1});
}

}  // namespace

void AddRerunCommand(Command app, Context& context) {
  auto options = std::make_shared<RerunOptions>();
  Command command = app.AddSubcommand("rerun", "Submit a job's file again, with changes");
  AddJobArgument(command, options->job);
  command.AddOption("--set", options->sets, "Change a field of the file; may be repeated")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  command.AddOption("--name", options->name, "Name of the new job, instead of the old one's")
      .ValueName("NAME");
  command.AddFlag("--watch", options->watch, "Follow the new job until it has ended");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "A new job with a folder of its own, which begins anew; show says which job it was made from. The file "
      "is\n"
      "the one that imgd has stored: what imgcli priority and extend changed is not in it.\n\n"
      "Examples:\n"
      "  imgcli rerun 12\n"
      "  imgcli rerun 12 --set optimizer.lr=0.2 --set seed=2 --name rn50-lr02");
  command.Runs([&context, options] { return RunRerun(context, *options); });
}

}  // namespace imgd::cli
