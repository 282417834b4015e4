#include <algorithm>
#include <map>
#include <memory>

#include "cli/checkpoints.h"
#include "cli/format.h"
#include "cli/words.h"
#include "common/checkpoint/prune.h"

namespace imgd::cli {
namespace {

constexpr uint32_t kJobsAtOnce = 1000;

struct PruneOptions {
  std::string kept_for;
  uint64_t total_bytes = 0;
  bool best = false;
  bool dry_run = false;
  bool yes = false;
};

/// What is seen from here of the checkpoints of all jobs that imgd knows.
struct Seen {
  std::vector<EndedCheckpoints> ended;
  std::map<JobId, std::shared_ptr<CheckpointStore>> stores;
  std::vector<uint64_t> live;  ///< jobs that have not ended
  uint64_t other_bytes = 0;    ///< theirs
  uint64_t unseen = 0;         ///< jobs that ended, with a folder that is not here
};

Reply<PruneRule> RuleOf(const PruneOptions& options) {
  PruneRule rule{.total_bytes = options.total_bytes, .best_stays = !options.best};
  if (!options.kept_for.empty()) {
    auto kept_for = ParseDuration(options.kept_for);
    if (!kept_for) {
      kept_for.error().message = "--kept-for: " + kept_for.error().message;
      return tl::unexpected(Errors{kept_for.error()});
    }
    rule.kept_for = *kept_for;
  }
  if (!rule.Empty()) return rule;
  return tl::unexpected(Errors{{.code = ErrorCode::kInvalidArgument,
                                .message = "nothing says how long or how much is kept",
                                .hint = "give --kept-for, --total-bytes or both"}});
}

void LookAt(Context& context, const v1::Job& job, Seen& seen) {
  const bool ended = IsFinal(job.state());
  if (!ended) seen.live.push_back(job.id());
  if (job.has_external() || job.checkpoint_dir().empty()) return;
  const std::filesystem::path root = job.checkpoint_dir();
  std::error_code ignored;
  if (!IsInS3(root) && !std::filesystem::is_directory(root, ignored)) {
    seen.unseen += ended ? 1 : 0;
    return;
  }
  auto store = OpenCheckpoints(root, {}, context.env());
  auto all = store ? SummarizeCheckpoints(**store)
                   : Result<std::vector<CheckpointSummary>>(tl::unexpected(store.error()));
  if (!all) {
    context.Say(fmt::format("job {} is passed over: {}", job.id(), all.error().message), Style::kWarn);
    return;
  }
  if (!ended) {
    for (const auto& checkpoint : *all) seen.other_bytes += checkpoint.size_bytes;
  } else if (!all->empty()) {
    seen.stores[JobId(job.id())] = std::move(*store);
    seen.ended.push_back({JobId(job.id()), {job.ended_us()}, std::move(*all)});
  }
}

Reply<Seen> LookAtAll(Context& context, Client& client) {
  Seen seen;
  v1::ListJobsRequest request;
  request.set_page_size(kJobsAtOnce);
  do {
    const auto page = client.ListJobs(request);
    if (!page) return tl::unexpected(page.error());
    for (const auto& job : page->jobs()) LookAt(context, job, seen);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return seen;
}

/// A job whose folder stands in the file of one that has not ended, which may begin with it, counts as not
/// ended.
Reply<void> KeepWhatIsWanted(Client& client, Seen& seen) {
  for (const uint64_t id : seen.live) {
    const auto answer = client.GetJob(id);
    if (!answer) return tl::unexpected(answer.error());
    std::erase_if(seen.ended, [&](const EndedCheckpoints& job) {
      if (answer->job().job_yaml().find(seen.stores.at(job.job)->root().native()) == std::string::npos)
        return false;
      for (const auto& checkpoint : job.checkpoints) seen.other_bytes += checkpoint.size_bytes;
      return true;
    });
  }
  return {};
}

void SayWhatGoes(Context& context, const std::vector<PrunedCheckpoint>& plan) {
  uint64_t bytes = 0;
  for (const auto& each : plan) {
    bytes += each.checkpoint.size_bytes;
    context.out() << fmt::format("{} ({}, {})\n", Printable(each.checkpoint.ref.path.native()),
                                 HumanBytes(each.checkpoint.size_bytes), each.is_old ? "old" : "too much");
  }
  context.Say(fmt::format("{}, {}", Count(plan.size(), "checkpoint"), HumanBytes(bytes)));
}

int RemoveAll(Context& context, const std::vector<PrunedCheckpoint>& plan, const Seen& seen) {
  for (const auto& each : plan) {
    const auto removed = seen.stores.at(each.job)->Remove(each.checkpoint.ref);
    if (!removed) return context.Fail({removed.error()});
    if (!*removed)
      context.Say(Printable(each.checkpoint.ref.path.native()) + " was pinned just now, and stays");
  }
  return 0;
}

int RunPrune(Context& context, const PruneOptions& options) {
  const auto rule = RuleOf(options);
  if (!rule) return context.Fail(rule.error());
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto seen = LookAtAll(context, **client);
  if (!seen) return context.Fail(seen.error());
  if (const auto kept = KeepWhatIsWanted(**client, *seen); !kept) return context.Fail(kept.error());
  if (seen->unseen > 0) {
    context.Say(fmt::format("{} that ended left no folder that is seen here", Count(seen->unseen, "job")),
                Style::kDim);
  }
  const auto plan = PlanPrune(seen->ended, seen->other_bytes, *rule, {NowMicros()});
  SayWhatGoes(context, plan);
  if (options.dry_run || plan.empty()) return 0;
  if (const auto may = MayDelete(context, plan.size(), options.yes); may != 0) return may;
  return RemoveAll(context, plan, *seen);
}

}  // namespace

void AddPrune(Command checkpoints, Context& context) {
  auto options = std::make_shared<PruneOptions>();
  Command command = checkpoints.AddSubcommand(
      "prune", "Delete old checkpoints of jobs that have ended, in S3 and in folders that are seen here");
  command.AddOption("--kept-for", options->kept_for, "Those of jobs that ended longer ago, such as 30d")
      .ValueName("TIME");
  command.AddNumber("--total-bytes", "While all together have more, those of the jobs that ended first", 1,
                    uint64_t{1} << 60, [options](uint64_t bytes) { options->total_bytes = bytes; });
  command.AddFlag("--also-best", options->best, "Also the best of each job, by its validation");
  command.AddFlag("--dry-run", options->dry_run, "Only say what would go");
  command.AddFlag("--yes", options->yes, "Don't ask");
  command.Footer(
      "Never those that are pinned or promoted, nor any of a job that has not ended, or whose folder stands "
      "in the\n"
      "file of one. imgd does the same by itself where it sees the folders (checkpoints_kept_for in "
      "imgd.yaml).\n\n"
      "Examples:\n"
      "  imgcli checkpoints prune --kept-for 30d --dry-run\n"
      "  imgcli checkpoints prune --total-bytes 2000000000000 --yes");
  command.Runs([&context, options] { return RunPrune(context, *options); });
}

}  // namespace imgd::cli
