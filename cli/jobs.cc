#include <algorithm>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/sweep_ref.h"
#include "cli/words.h"
#include "common/utf8.h"

namespace imgd::cli {
namespace {

constexpr uint32_t kLargestPage = 1000;

struct JobsOptions {
  std::vector<std::string> states;
  std::string name;
  std::string owner;
  std::string sweep;
  uint64_t limit = 20;
  bool all = false;
  OutputFormat format = OutputFormat::kTable;
};

struct Listing {
  std::vector<v1::Job> jobs;
  bool more = false;  ///< the daemon has others
  std::string warning;
};

Reply<Listing> Fetch(Client& client, v1::ListJobsRequest request, uint64_t limit) {
  Listing listing;
  while (listing.jobs.size() < limit) {
    const uint64_t left = limit - listing.jobs.size();
    request.set_page_size(static_cast<uint32_t>(std::min<uint64_t>(left, kLargestPage)));
    auto page = client.ListJobs(request);
    if (!page) return tl::unexpected(std::move(page).error());
    for (auto& job : *page->mutable_jobs()) listing.jobs.push_back(std::move(job));
    listing.warning = page->warning();
    listing.more = !page->next_page_token().empty();
    if (!listing.more) break;
    request.set_page_token(page->next_page_token());
  }
  return listing;
}

bool IsByHand(const v1::Job& job) { return job.has_external(); }

/// Columns that most lists have no use for are left out.
struct Columns {
  bool wide = false;
  bool by_hand = false;  ///< some job was started by hand
  bool kinds = false;    ///< some job does not train
  bool figures = false;  ///< some job trains
};

std::vector<Cell> Row(const v1::Job& job, const Columns& columns, int64_t now_us) {
  const bool running = job.state() == v1::JOB_STATE_RUNNING && job.has_last_step();
  const auto& step = job.last_step();
  std::vector<Cell> row = {Cell(std::to_string(job.id())), Cell(job.name())};
  if (columns.kinds) row.emplace_back(KindText(job.kind()));
  row.emplace_back(StateName(job.state()), StyleOf(job.state()));
  if (columns.figures) {
    row.insert(row.end(), {Cell(ProgressText(job)), Cell(running ? SpeedText(step) : ""),
                           Cell(job.has_last_step() ? HumanLoss(step.loss()) : ""),
                           Cell(job.has_last_epoch() ? HumanPercent(job.last_epoch().val_top1()) : ""),
                           Cell(running ? TimeLeftText(step) : "")});
  }
  row.insert(row.end(), {Cell(NodesText(job)), Cell(HumanAge(now_us, job.submitted_us()))});
  if (columns.by_hand) row.emplace_back(ByHandText(job), Style::kDim);
  if (columns.wide) {
    row.insert(row.end(), {Cell(std::to_string(RanksNow(job))), Cell(job.owner()),
                           Cell(std::to_string(job.priority())), Cell(std::to_string(job.generation())),
                           Cell(std::to_string(job.restarts())), Cell(job.reason_text(), Style::kDim)});
  }
  return row;
}

std::vector<Column> HeadOf(const Columns& columns) {
  std::vector<Column> head = {{"ID", true}, {.title = "NAME", .shrink = true}};
  if (columns.kinds) head.push_back({"KIND"});
  head.push_back({"STATE"});
  if (columns.figures)
    head.insert(head.end(),
                {{"PROGRESS"}, {"IMAGES/S", true}, {"LOSS", true}, {"TOP-1", true}, {"ETA", true}});
  head.insert(head.end(), {{"NODES", true}, {"AGE", true}});
  if (columns.by_hand) head.push_back({.title = "NOT MANAGED", .shrink = true});
  if (columns.wide) {
    head.insert(head.end(), {{"RANKS", true},
                             {.title = "OWNER", .shrink = true},
                             {"PRIORITY", true},
                             {"GENERATION", true},
                             {"RESTARTS", true},
                             {.title = "REASON", .shrink = true}});
  }
  return head;
}

void PrintTable(Context& context, const std::vector<v1::Job>& jobs, bool wide) {
  const Columns columns{.wide = wide,
                        .by_hand = std::any_of(jobs.begin(), jobs.end(), IsByHand),
                        .kinds = !std::all_of(jobs.begin(), jobs.end(), Trains),
                        .figures = std::any_of(jobs.begin(), jobs.end(), Trains)};
  Table table(HeadOf(columns));
  const int64_t now_us = NowMicros();
  for (const auto& job : jobs) table.Add(Row(job, columns, now_us));
  table.Print(context.out(), context.terminal());
}

Reply<v1::ListJobsRequest> MakeRequest(const JobsOptions& options) {
  v1::ListJobsRequest request;
  for (const auto& name : options.states) {
    auto state = ParseState(name);
    if (!state) {
      Error error = std::move(state).error();
      error.message = fmt::format("--state: {}", error.message);
      return tl::unexpected(Errors{std::move(error)});
    }
    request.add_states(*state);
  }
  request.set_owner(ToUtf8(options.owner));
  request.set_name_contains(ToUtf8(options.name));
  return request;
}

int RunJobs(Context& context, const JobsOptions& options) {
  auto request = MakeRequest(options);
  if (!request) return context.Fail(request.error());
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  if (!options.sweep.empty()) {
    auto sweep = FindSweep(**client, options.sweep);
    if (!sweep) return context.Fail(sweep.error());
    request->set_sweep_id(sweep->id());
  }
  auto listing = Fetch(**client, std::move(*request), options.all ? UINT64_MAX : options.limit);
  if (!listing) return context.Fail(listing.error());
  context.Warn(listing->warning);

  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    PrintDocument(context.out(), ToJsonArray(listing->jobs), options.format);
  } else if (!listing->jobs.empty()) {
    PrintTable(context, listing->jobs, options.format == OutputFormat::kWide);
  } else {
    const bool filtered =
        !options.states.empty() || !options.name.empty() || !options.owner.empty() || !options.sweep.empty();
    context.Say(filtered ? "no job matches" : "no jobs yet; imgcli submit job.yaml makes one");
  }
  if (listing->more) {
    context.Say(fmt::format("the newest {}; --all shows every one", Count(listing->jobs.size(), "job")),
                Style::kDim);
  }
  return 0;
}

}  // namespace

void AddJobsCommand(Command app, Context& context) {
  auto options = std::make_shared<JobsOptions>();
  Command command = app.AddSubcommand("jobs", "List jobs, newest first");
  command
      .AddOption("--state", options->states,
                 "Only jobs in this state (queued, starting, running, preempting, paused, completed, failed, "
                 "cancelled); may be repeated")
      .ValueName("STATE")
      .SplitAtCommas()
      .OneValueEach();
  command.AddOption("--name", options->name, "Only jobs whose name contains this").ValueName("TEXT");
  command.AddOption("--owner", options->owner, "Only this user's jobs").ValueName("USER");
  command.AddOption("--sweep", options->sweep, "Only jobs of this sweep").ValueName("SWEEP");
  command.AddNumber("--limit", "So many at most (default 20)", 1, 1'000'000,
                    [options](uint64_t limit) { options->limit = limit; });
  command.AddFlag("--all", options->all, "Every job, however many");
  AddOutputOption(command, options->format);
  command.Footer(
      "LOSS is the training loss now, TOP-1 the accuracy of the last validation. -o wide adds the owner, "
      "the\n"
      "priority, how often the job was started, and why it is in its state.\n\n"
      "Examples:\n"
      "  imgcli jobs --state running --state queued\n"
      "  imgcli jobs --owner $USER --name rn50 -o wide\n"
      "  imgcli jobs --all -o json | jq -r '.[] | select(.state == \"JOB_STATE_FAILED\") | .id'");
  command.Runs([&context, options] { return RunJobs(context, *options); });
}

}  // namespace imgd::cli
