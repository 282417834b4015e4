#include <algorithm>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

/// What the API has typed, for programs.
nlohmann::ordered_json ExplainDocument(const v1::Job& job) {
  auto whole = ToJson(job);
  nlohmann::ordered_json document;
  for (const char* field :
       {"id", "name", "kind", "state", "reason", "reason_text", "queue_position", "expected_start_us"}) {
    if (whole.contains(field)) document[field] = whole[field];
  }
  return document;
}

/// It is to start only if others end otherwise than one has.
bool CanNotStart(const v1::Job& job) {
  return std::ranges::any_of(job.after(), [](const v1::Dependency& one) {
    if (one.ended() == v1::JOB_STATE_UNSPECIFIED || one.when() == v1::AFTER_END_ANY) return false;
    return one.ended() !=
           (one.when() == v1::AFTER_END_FAILED ? v1::JOB_STATE_FAILED : v1::JOB_STATE_COMPLETED);
  });
}

int RunExplain(Context& context, const std::string& reference, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto answer = GetJobOf(**client, reference);
  if (!answer) return context.Fail(answer.error());
  context.Warn(answer->warning());
  const auto& job = answer->job();
  if (format != OutputFormat::kTable) {
    PrintDocument(context.out(), ExplainDocument(job), format);
    return 0;
  }
  context.out() << fmt::format("{} is {}: {}\n", JobTitle(job),
                               Paint(StateName(job.state()), StyleOf(job.state()), context.terminal().color),
                               Printable(job.reason_text()));
  if (job.state() == v1::JOB_STATE_QUEUED) {
    const std::string start = ExpectedStartText(job, NowMicros());
    context.out() << (start.empty() ? "When it will start is not known.\n"
                                    : fmt::format("It will probably start {}.\n", start));
  }
  if (job.state() == v1::JOB_STATE_PAUSED && !CanNotStart(job))
    context.out() << fmt::format("{} lets it go on.\n", context.Suggest(fmt::format("resume {}", job.id())));
  return 0;
}

}  // namespace

void AddExplainCommand(Command app, Context& context) {
  struct Options {
    std::string job;
    OutputFormat format = OutputFormat::kTable;
  };
  auto options = std::make_shared<Options>();
  Command command = app.AddSubcommand(
      "explain", "Say why a job is as it is: what it waits for and until when, or why it ended");
  AddJobArgument(command, options->job);
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "When it starts is an estimate: running jobs say how long they will take at their speed, or have a\n"
      "time_limit, and those before it in the queue come first.\n\n"
      "Examples:\n"
      "  imgcli explain 12\n"
      "  imgcli explain rn50-a -o json | jq -r .reason");
  command.Runs([&context, options] { return RunExplain(context, options->job, options->format); });
}

}  // namespace imgd::cli
