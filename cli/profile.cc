#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr Duration kLookAtJob = std::chrono::seconds(2);  ///< whether it still runs

constexpr uint64_t kMostSteps = 1000;  ///< that imgd takes

struct ProfileOptions {
  std::string job;
  uint32_t rank = 0;
  uint32_t steps = 5;
  std::string file;
};

using ProfileStream = Stream<v1::WatchJobResponse>;

/// The next profile of the rank after the event `after`.
Reply<v1::ProfileWritten> AwaitProfile(Context& context, Client& client, uint64_t id, uint64_t after,
                                       uint32_t rank) {
  while (true) {
    v1::WatchJobRequest request;
    request.set_id(id);
    request.set_after_event(after);
    const auto stream = client.WatchJob(request);
    v1::WatchJobResponse response;
    auto outcome = ProfileStream::Outcome::kIdle;
    while (outcome != ProfileStream::Outcome::kEnd && !context.interrupt().Triggered()) {
      outcome = stream->Next(response, std::chrono::steady_clock::now() + kLookAtJob);
      if (outcome == ProfileStream::Outcome::kIdle) break;  // the job may not run any more
      if (outcome != ProfileStream::Outcome::kItem) continue;
      after = std::max(after, response.event().number());
      if (response.event().has_profile() && response.event().profile().rank() == rank) {
        return response.event().profile();
      }
    }
    if (context.interrupt().Triggered()) {
      return tl::unexpected(Errors{Error{.code = ErrorCode::kCancelled, .message = "no longer waiting"}});
    }
    if (outcome == ProfileStream::Outcome::kEnd) {
      if (auto ended = stream->Finish(); !ended && !IsOutage(ended.error())) {
        return tl::unexpected(std::move(ended).error());
      }
    }
    auto job = client.GetJob(id);
    if (!job) return tl::unexpected(std::move(job).error());
    if (job->job().state() != v1::JOB_STATE_RUNNING) {
      return tl::unexpected(
          Errors{{.code = ErrorCode::kFailedPrecondition,
                  .message = fmt::format("{} is {} now, and no profile came", JobTitle(job->job()),
                                         StateName(job->job().state()))}});
    }
  }
}

/// Copies the trace where this machine sees it.
int Fetch(Context& context, const v1::ProfileWritten& profile, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(profile.trace(), file, error)) return 0;
  error.clear();
  fs::copy_file(profile.trace(), file, fs::copy_options::overwrite_existing, error);
  if (!error) {
    context.out() << fmt::format("trace: {}\n", file);
    return 0;
  }
  return context.Fail({Error{.code = ErrorCode::kNotFound,
                             .message = fmt::format("cannot copy {}: {}", profile.trace(), error.message()),
                             .hint = "it is in the job's folder of figures, as the rank's node sees it"}});
}

int RunProfile(Context& context, const ProfileOptions& options) {
  context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto job = GetJobOf(**client, options.job);
  if (!job) return context.Fail(job.error());
  v1::ProfileJobRequest request;
  request.set_id(job->job().id());
  request.set_rank(options.rank);
  request.set_steps(options.steps);
  auto asked = (*client)->ProfileJob(request);
  if (!asked) return context.Fail(asked.error());
  context.Say(fmt::format("rank {} on {} profiles its next {}", options.rank, asked->node(),
                          Count(options.steps, "step")));
  auto profile =
      AwaitProfile(context, **client, job->job().id(), job->job().last_event_number(), options.rank);
  if (context.interrupt().Triggered()) return context.interrupt().ExitCode();
  if (!profile) return context.Fail(profile.error());
  context.out() << profile->table() << '\n';
  if (!options.file.empty()) return Fetch(context, *profile, options.file);
  context.out() << fmt::format("trace: {}\n", Printable(profile->trace()));
  return 0;
}

}  // namespace

void AddProfileCommand(Command app, Context& context) {
  auto options = std::make_shared<ProfileOptions>();
  Command command = app.AddSubcommand("profile", "Profile some steps of a running job");
  AddJobArgument(command, options->job);
  command.AddNumber("--rank", "Which rank (default: 0)", 0, UINT32_MAX,
                    [options](uint64_t rank) { options->rank = static_cast<uint32_t>(rank); });
  command.AddNumber("--steps", "How many steps (default: 5)", 1, kMostSteps,
                    [options](uint64_t steps) { options->steps = static_cast<uint32_t>(steps); });
  command.AddOption("-o,--output", options->file, "Copy the trace to this file").ValueName("FILE");
  command.Footer(
      "Prints where the steps' time went and the costliest operators. The trace, for chrome://tracing or\n"
      "ui.perfetto.dev, is written by the rank into the job's folder of figures; -o copies it where this\n"
      "machine sees that folder.\n\n"
      "Examples:\n"
      "  imgcli profile 12\n"
      "  imgcli profile rn50-90ep --rank 3 --steps 10 -o trace.json");
  command.Runs([&context, options] { return RunProfile(context, *options); });
}

}  // namespace imgd::cli
