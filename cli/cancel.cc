#include <algorithm>
#include <ranges>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/sweep_ref.h"
#include "cli/watch.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

struct CancelOptions {
  std::vector<std::string> jobs;
  bool checkpoint = false;
  bool wait = false;
  bool sweep = false;
  OutputFormat format = OutputFormat::kTable;
};

Reply<v1::Job> CancelOne(Context& context, Client& client, const std::string& reference,
                         const CancelOptions& options) {
  const auto on_retry = [&] {
    context.Say(fmt::format("imgd at {} does not answer; trying again", client.address().target),
                Style::kWarn);
  };
  auto id = FindJob(client, reference, on_retry);
  if (!id) return tl::unexpected(std::move(id).error());
  v1::CancelJobRequest request;
  request.set_id(*id);
  request.set_checkpoint(options.checkpoint);
  request.set_actor(OwnerName(context.env()));
  auto answer = client.CancelJob(request, on_retry);
  if (!answer) return tl::unexpected(std::move(answer).error());
  return std::move(*answer->mutable_job());
}

void SayCancelled(Context& context, const v1::Job& job, bool checkpoint) {
  if (IsFinal(job.state())) {
    const bool cancelled = job.state() == v1::JOB_STATE_CANCELLED;
    context.out() << fmt::format("{} {} {}\n", JobTitle(job),
                                 cancelled ? "is" : "had ended before:", StateName(job.state()));
  } else {
    context.out() << fmt::format("{} is being cancelled{}\n", JobTitle(job),
                                 checkpoint ? ", after a checkpoint" : "");
  }
}

/// Waits for the end of a job whose end was asked for; `job` is then what became of it.
int WaitForEnd(Context& context, Client& client, v1::Job& job) {
  const int code = FollowJob(context, client, job.id(), {.quiet = true, .ending = true});
  if (auto now = client.GetJob(job.id())) job = std::move(*now->mutable_job());
  // That it was cancelled is what was wanted.
  return code == ExitCodeOfState(v1::JOB_STATE_CANCELLED) ? 0 : code;
}

Reply<v1::CancelSweepResponse> CancelOneSweep(Context& context, Client& client, const v1::Sweep& sweep,
                                              const CancelOptions& options) {
  v1::CancelSweepRequest request;
  request.set_id(sweep.id());
  request.set_checkpoint(options.checkpoint);
  request.set_actor(OwnerName(context.env()));
  return client.CancelSweep(request, [&] {
    context.Say(fmt::format("imgd at {} does not answer; trying again", client.address().target),
                Style::kWarn);
  });
}

void SaySweepCancelled(Context& context, const v1::Sweep& sweep, uint64_t cancelled, bool checkpoint) {
  if (cancelled == 0) {
    context.out() << fmt::format("all jobs of {} had ended before\n", SweepTitle(sweep));
  } else {
    context.out() << fmt::format("{} of {} {} being cancelled{}\n", Count(cancelled, "job"),
                                 SweepTitle(sweep), cancelled == 1 ? "is" : "are",
                                 checkpoint ? ", after a checkpoint" : "");
  }
}

int WaitForEndOfSweep(Context& context, Client& client, const v1::Sweep& sweep) {
  const int code = FollowSweep(context, client, sweep, /*ending=*/true);
  // How they ended is another matter than that they did.
  return code == ExitCodeOfState(v1::JOB_STATE_CANCELLED) || code == ExitCodeOfState(v1::JOB_STATE_FAILED)
             ? 0
             : code;
}

int CancelSweeps(Context& context, Client& client, const CancelOptions& options) {
  std::vector<v1::Sweep> asked;
  auto documents = nlohmann::ordered_json::array();
  int exit_code = 0;
  const auto note = [&exit_code](int code) {
    if (exit_code == 0) exit_code = code;
  };
  for (const auto& reference : options.jobs) {
    if (context.interrupt().Triggered()) break;
    auto sweep = FindSweep(client, reference);
    if (!sweep) {
      note(context.Fail(sweep.error()));
      continue;
    }
    const auto answer = CancelOneSweep(context, client, *sweep, options);
    if (!answer) {
      note(context.Fail(answer.error()));
      continue;
    }
    if (IsDocument(options.format)) {
      documents.push_back(ToJson(*answer));
    } else {
      SaySweepCancelled(context, *sweep, answer->cancelled(), options.checkpoint);
    }
    asked.push_back(std::move(*sweep));
  }
  if (options.wait) {
    for (const auto& sweep : asked) {
      note(WaitForEndOfSweep(context, client, sweep));
      if (context.interrupt().Triggered()) break;
    }
  }
  if (!documents.empty())
    PrintDocument(context.out(), options.jobs.size() == 1 ? documents[0] : documents, options.format);
  return exit_code;
}

/// All are asked before any is waited for: else the rest would run on meanwhile, or start on what came free.
int RunCancel(Context& context, const CancelOptions& options) {
  if (options.wait) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  if (options.sweep) return CancelSweeps(context, **client, options);
  std::vector<v1::Job> asked;
  int exit_code = 0;
  const auto note = [&exit_code](int code) {
    if (exit_code == 0) exit_code = code;
  };
  // From the last one on, as of a sweep: those behind would start in the place of those before.
  for (const auto& reference : std::views::reverse(options.jobs)) {
    if (context.interrupt().Triggered()) break;
    auto job = CancelOne(context, **client, reference, options);
    if (!job) {
      note(context.Fail(job.error()));
      continue;
    }
    if (!IsDocument(options.format)) SayCancelled(context, *job, options.checkpoint);
    asked.push_back(std::move(*job));
  }
  if (options.wait) {
    for (auto& job : asked) {
      note(WaitForEnd(context, **client, job));
      if (context.interrupt().Triggered()) break;
    }
  }
  if (IsDocument(options.format) && !asked.empty()) {
    std::reverse(asked.begin(), asked.end());
    const auto documents = ToJsonArray(asked);
    PrintDocument(context.out(), options.jobs.size() == 1 ? documents[0] : documents, options.format);
  }
  return exit_code;
}

}  // namespace

void AddCancelCommand(Command app, Context& context) {
  auto options = std::make_shared<CancelOptions>();
  Command command = app.AddSubcommand("cancel", "End jobs");
  command.AddOption("JOB", options->jobs, "Numbers of the jobs, or their names").Required().ValueName("");
  command.AddFlag("--checkpoint", options->checkpoint, "Save a checkpoint first");
  command.AddFlag("--wait", options->wait, "Wait until no process of the job is left");
  command.AddFlag("--sweep", options->sweep, "JOB is a sweep: all of its jobs are ended");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "Without --checkpoint the ranks are ended at once, also in the middle of a step; those that do not "
      "obey\n"
      "are killed after the job's grace time.\n\n"
      "Examples:\n"
      "  imgcli cancel 12\n"
      "  imgcli cancel rn18-demo --checkpoint --wait\n"
      "  imgcli cancel 13 14 15\n"
      "  imgcli cancel --sweep rn18");
  command.Runs([&context, options] { return RunCancel(context, *options); });
}

}  // namespace imgd::cli
