#include "cli/checkpoints.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_ref.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

struct ListOptions {
  std::string where;
  OutputFormat format = OutputFormat::kTable;
};

struct PinOptions {
  std::vector<std::string> references;
  std::string note;
};

struct DeleteOptions {
  std::vector<std::string> references;
  bool yes = false;
  bool force = false;
};

/// Why each stays, in imgd's words, by path: it knows the job file's rule. Nothing of a folder alone.
using KeptAs = std::map<std::string, std::vector<std::string>>;

KeptAs AskWhyKept(Context& context, const CheckpointFolder& folder) {
  KeptAs out;
  if (!folder.job) return out;
  const auto client = context.client();
  if (!client) return out;
  const auto told = (*client)->ListCheckpoints(folder.job->id());
  if (!told) return out;  // an imgd of before; what the folder itself tells is there
  for (const auto& one : told->checkpoints())
    out[one.checkpoint().path()] = {one.kept_as().begin(), one.kept_as().end()};
  return out;
}

/// With what the folder itself tells, which is newer.
std::vector<std::string> WhyKept(const CheckpointSummary& summary, const KeptAs& kept_as) {
  const auto told = kept_as.find(summary.ref.path.native());
  auto out = told == kept_as.end() ? std::vector<std::string>() : told->second;
  std::erase_if(out, [](const std::string& why) { return why == "best" || why == "pinned"; });
  if (summary.best) out.push_back("best");
  if (summary.pinned) out.push_back("pinned");
  return out;
}

std::vector<Cell> CheckpointRow(const CheckpointSummary& summary, const KeptAs& kept_as, bool wide,
                                int64_t now_us) {
  const auto& score = summary.score;
  std::vector<Cell> row = {Cell(std::to_string(summary.ref.generation)),
                           Cell(std::to_string(summary.ref.step)),
                           Cell(summary.epoch ? fmt::format("{:.2f}", *summary.epoch) : ""),
                           Cell(score ? HumanPercent(score->top1) : ""),
                           Cell(HumanBytes(summary.size_bytes)),
                           Cell(HumanAge(now_us, summary.written_us)),
                           Cell(fmt::format("{}", fmt::join(WhyKept(summary, kept_as), ", ")))};
  if (wide) {
    row.insert(row.end(),
               {Cell(score ? HumanPercent(score->top5) : ""), Cell(score ? HumanLoss(score->loss) : ""),
                Cell(HumanLoss(summary.loss)), Cell(summary.model), Cell(std::to_string(summary.world_size)),
                Cell(summary.has_average ? "yes" : "no"), Cell(summary.ref.path.native())});
  }
  return row;
}

void PrintCheckpoints(Context& context, const std::vector<CheckpointSummary>& all, const KeptAs& kept_as,
                      bool wide) {
  std::vector<Column> columns = {{"GENERATION", true}, {"STEP", true}, {"EPOCH", true}, {"TOP-1", true},
                                 {"SIZE", true},       {"AGE", true},  {"KEPT AS"}};
  if (wide) {
    columns.insert(columns.end(), {{"TOP-5", true},
                                   {"VAL LOSS", true},
                                   {"LOSS", true},
                                   {"MODEL"},
                                   {"RANKS", true},
                                   {"EMA"},
                                   {.title = "FOLDER", .shrink = true}});
  }
  Table table(std::move(columns));
  const int64_t now_us = NowMicros();
  for (const auto& summary : all) table.Add(CheckpointRow(summary, kept_as, wide, now_us));
  table.Print(context.out(), context.terminal());
}

int RunCheckpoints(Context& context, const ListOptions& options) {
  auto folder = FindCheckpointFolder(context, options.where);
  if (!folder) return context.Fail(folder.error());
  std::vector<CheckpointSummary> shown;
  if (auto itself = CheckpointItself(context, options.where)) {
    shown.push_back(std::move(itself->summary));
  } else {
    auto all = SummarizeCheckpoints(*folder->store);
    if (!all) return context.Fail({all.error()});
    shown = std::move(*all);
  }
  const KeptAs kept_as = AskWhyKept(context, *folder);
  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    auto document = nlohmann::ordered_json::array();
    for (const auto& summary : shown) {
      document.push_back(CheckpointJson(summary));
      document.back()["kept_as"] = WhyKept(summary, kept_as);
    }
    PrintDocument(context.out(), document, options.format);
  } else if (!shown.empty()) {
    PrintCheckpoints(context, shown, kept_as, options.format == OutputFormat::kWide);
  } else {
    context.Say(fmt::format("no complete checkpoints in {}", folder->root().native()));
  }
  return 0;
}

/// Also where one of the paths is relative, or leads through a link.
bool IsSameFolder(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;  // what is in a bucket is no path here
  return a == b || std::filesystem::equivalent(a, b, ignored);
}

/// All of them, each once however often it is named, or what is wrong with any.
Reply<std::vector<NamedCheckpoint>> FindAll(Context& context, const std::vector<std::string>& references) {
  std::vector<NamedCheckpoint> out;
  Errors errors;
  for (const auto& reference : references) {
    auto found = FindCheckpoint(context, reference);
    if (!found) {
      errors.insert(errors.end(), found.error().begin(), found.error().end());
      continue;
    }
    const bool named = std::any_of(out.begin(), out.end(), [&found](const NamedCheckpoint& other) {
      return IsSameFolder(other.summary.ref.path, found->summary.ref.path);
    });
    if (!named) out.push_back(std::move(*found));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return out;
}

int RunPin(Context& context, const PinOptions& options, bool pin) {
  const auto all = FindAll(context, options.references);
  if (!all) return context.Fail(all.error());
  for (const auto& [folder, summary] : *all) {
    const auto& ref = summary.ref;
    std::string why = fmt::format("pinned by {}", OwnerName(context.env()));
    if (!options.note.empty()) why += ": " + options.note;
    const auto done = pin ? folder.store->Pin(ref, why) : folder.store->Unpin(ref);
    if (!done) return context.Fail({done.error()});
    context.out() << fmt::format("{} is {}\n", Printable(ref.path.native()),
                                 pin ? "pinned" : "pinned no more");
  }
  return 0;
}

/// Whether a run would go on from it, as far as can be seen: nobody can know of a folder alone.
bool MayBeNeeded(const NamedCheckpoint& named) {
  const auto& job = named.folder.job;
  if (job && IsFinal(job->state())) return false;
  if (job && job->last_checkpoint().path() == named.summary.ref.path) return true;
  const auto all = named.folder.store->List();
  return !all || all->complete.empty() || all->complete.front().path == named.summary.ref.path;
}

Errors ReasonsAgainst(const std::vector<NamedCheckpoint>& all, bool force) {
  Errors errors;
  for (const auto& named : all) {
    const auto path = named.summary.ref.path.native();
    if (named.summary.pinned) {
      errors.push_back({.code = ErrorCode::kFailedPrecondition,
                        .message = fmt::format("{} is pinned", path),
                        .hint = "imgcli checkpoints unpin lets it go"});
    } else if (!force && MayBeNeeded(named)) {
      errors.push_back({.code = ErrorCode::kFailedPrecondition,
                        .message = fmt::format("{} is the one that a run would go on from", path),
                        .hint = named.folder.job
                                    ? "--force deletes it all the same"
                                    : "when its job has ended, name it by the job, or add --force"});
    }
  }
  return errors;
}

bool Confirmed(Context& context, size_t count) {
  context.err() << fmt::format("delete {}? [y/N] ", Count(count, "checkpoint")) << std::flush;
  std::string answer;
  std::getline(context.in(), answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int RunDelete(Context& context, const DeleteOptions& options) {
  const auto all = FindAll(context, options.references);
  if (!all) return context.Fail(all.error());
  if (const auto errors = ReasonsAgainst(*all, options.force); !errors.empty()) return context.Fail(errors);
  if (!options.yes) {
    for (const auto& named : *all) context.Say(named.summary.ref.path.native());
  }
  if (const int may = MayDelete(context, all->size(), options.yes); may != 0) return may;
  for (const auto& named : *all) {
    const auto& path = named.summary.ref.path;
    const auto removed = named.folder.store->Remove(named.summary.ref);
    if (!removed) return context.Fail({removed.error()});
    context.out() << fmt::format("{} {}\n", Printable(path.native()),
                                 *removed ? "is deleted" : "was pinned just now, and stays");
  }
  return 0;
}

void AddPin(Command checkpoints, Context& context, bool pin) {
  auto options = std::make_shared<PinOptions>();
  Command command =
      checkpoints.AddSubcommand(pin ? "pin" : "unpin", pin ? "Make checkpoints stay whatever the job keeps"
                                                           : "Let pinned ones go again");
  command.AddOption("CKPT", options->references, kCheckpointHelp).Required().ValueName("").AtLeast(1);
  if (pin) command.AddOption("--note", options->note, "Why, for whoever finds the pin").ValueName("TEXT");
  command.Runs([&context, options, pin] { return RunPin(context, *options, pin); });
}

void AddDelete(Command checkpoints, Context& context) {
  auto options = std::make_shared<DeleteOptions>();
  Command command = checkpoints.AddSubcommand("delete", "Delete checkpoints, but never pinned ones");
  command.AddOption("CKPT", options->references, kCheckpointHelp).Required().ValueName("").AtLeast(1);
  command.AddFlag("--yes", options->yes, "Don't ask");
  command.AddFlag("--force", options->force, "Also the one that a run would go on from");
  command.Runs([&context, options] { return RunDelete(context, *options); });
}

}  // namespace

int MayDelete(Context& context, size_t count, bool yes) {
  if (yes) return 0;
  if (!context.terminal().err_is_terminal) {
    return context.Fail({{.code = ErrorCode::kFailedPrecondition,
                          .message = "nothing is deleted unasked where there is no terminal to ask on",
                          .hint = "add --yes"}});
  }
  if (Confirmed(context, count)) return 0;
  context.Say("nothing was deleted");
  return ExitCodeOf(ErrorCode::kCancelled);
}

nlohmann::ordered_json CheckpointJson(const CheckpointSummary& summary) {
  nlohmann::ordered_json json = {{"folder", summary.ref.path.native()},
                                 {"generation", summary.ref.generation},
                                 {"step", summary.ref.step},
                                 {"epoch", nullptr},
                                 {"loss", summary.loss},
                                 {"validation", nullptr},
                                 {"model", summary.model},
                                 {"ranks", summary.world_size},
                                 {"has_average", summary.has_average},
                                 {"size_bytes", summary.size_bytes},
                                 {"written_us", summary.written_us},
                                 {"pinned", summary.pinned},
                                 {"best", summary.best}};
  if (summary.epoch) json["epoch"] = *summary.epoch;
  if (summary.score) {
    json["validation"] = {{"top1", summary.score->top1},
                          {"top5", summary.score->top5},
                          {"loss", summary.score->loss},
                          {"images", summary.score->images}};
  }
  return json;
}

void AddCheckpointsCommand(Command app, Context& context) {
  auto options = std::make_shared<ListOptions>();
  Command checkpoints =
      app.AddSubcommand("checkpoints", "List, pin, compare, delete and prune jobs' checkpoints");
  // Not required here: it would be for the subcommands too.
  checkpoints
      .AddOption("JOB|DIR", options->where,
                 "The job, or the folder of its checkpoints (a path with a / in it)")
      .ValueName("");
  AddOutputOption(checkpoints, options->format);
  checkpoints.Footer(
      "TOP-1 is of the validation pass of these very weights, the averaged ones where the job has ema.\n\n"
      "Examples:\n"
      "  imgcli checkpoints rn50\n"
      "  imgcli checkpoints /ckpt/rn50-a1b2-12 -o wide\n"
      "  imgcli checkpoints pin rn50:best --note 'the one in the paper'\n"
      "  imgcli checkpoints compare rn50:10000 rn50:latest\n"
      "  imgcli checkpoints delete rn50:5000 --yes");
  checkpoints.Runs([&context, options] {
    if (!options->where.empty()) return RunCheckpoints(context, *options);
    return context.Fail({{.code = ErrorCode::kInvalidArgument,
                          .message = "JOB|DIR is missing: the job, or the folder of its checkpoints",
                          .hint = "imgcli checkpoints --help"}});
  });
  AddPin(checkpoints, context, true);
  AddPin(checkpoints, context, false);
  AddCompare(checkpoints, context);
  AddDelete(checkpoints, context);
  AddPrune(checkpoints, context);
}

}  // namespace imgd::cli
