#include <nlohmann/json.hpp>

#include "cli/checkpoint_ref.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/model_registry.h"
#include "cli/serialize.h"
#include "cli/weights.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

struct RegistryOption {
  std::string folder;  ///< --registry; empty: as ResolveRegistry()
};

struct PromoteOptions : RegistryOption {
  std::string reference;
  std::string name;
  std::string note;
  WhichWeights weights;
};

struct ListOfModelsOptions : RegistryOption {
  OutputFormat format = OutputFormat::kTable;
};

struct ShowModelOptions : ListOfModelsOptions {
  std::string reference;
};

nlohmann::ordered_json ModelJson(const ModelVersion& version) {
  nlohmann::ordered_json json = {{"name", version.name},
                                 {"version", version.version},
                                 {"folder", version.path.native()},
                                 {"model", version.model},
                                 {"is_average", version.is_average},
                                 {"checkpoint", version.checkpoint},
                                 {"validation", nullptr},
                                 {"note", version.note},
                                 {"promoted_by", version.promoted_by},
                                 {"promoted_us", version.promoted_us},
                                 {"size_bytes", version.size_bytes},
                                 {"sha256", version.sha256}};
  if (version.score) {
    json["validation"] = {{"top1", version.score->top1},
                          {"top5", version.score->top5},
                          {"loss", version.score->loss},
                          {"images", version.score->images}};
  }
  return json;
}

/// What became a model stays as a checkpoint too, from which training could go on. A pin of before has its
/// reason.
void KeepPromoted(Context& context, const NamedCheckpoint& from, const ModelVersion& version) {
  if (from.summary.pinned) return;
  const auto why =
      fmt::format("promoted as {}:v{} by {}", version.name, version.version, version.promoted_by);
  if (const auto pinned = from.folder.store->Pin(from.summary.ref, why); !pinned) {
    context.Say(fmt::format("the checkpoint itself could not be pinned: {}", pinned.error().message),
                Style::kWarn);
  }
}

int RunPromote(Context& context, const PromoteOptions& options) {
  const auto registry = ResolveRegistry(options.folder, context.env());
  if (!registry) return context.Fail(registry.error());
  const auto found = FindCheckpoint(context, options.reference);
  if (!found) return context.Fail(found.error());
  const auto weights = ReadWeights(*found->folder.store, found->summary, options.weights);
  if (!weights) return context.Fail({weights.error()});
  ModelVersion version{.name = options.name,
                       .model = found->summary.model,
                       .checkpoint = found->summary.ref.path.native(),
                       .note = options.note,
                       .promoted_by = OwnerName(context.env()),
                       .promoted_us = NowMicros()};
  // Validation is of the average where there is one.
  if ((*weights)->average == found->summary.has_average) version.score = found->summary.score;
  const auto promoted = PromoteModel(*registry, version, **weights);
  if (!promoted) return context.Fail({promoted.error()});
  context.out() << fmt::format("{}:v{} is {} of {}\n", promoted->name, promoted->version,
                               promoted->is_average ? "the averaged weights" : "the weights",
                               Printable(promoted->checkpoint));
  KeepPromoted(context, *found, *promoted);
  return 0;
}

void PrintModels(Context& context, const std::vector<ModelVersion>& models, bool wide) {
  std::vector<Column> columns = {{.title = "NAME", .shrink = !wide},
                                 {"VERSION"},
                                 {"MODEL"},
                                 {"TOP-1", true},
                                 {"SIZE", true},
                                 {"AGE", true}};
  if (wide) columns.insert(columns.end(), {Column{"BY"}, Column{"CHECKPOINT"}, Column{"FOLDER"}});
  columns.push_back({.title = "NOTE", .shrink = !wide});
  Table table(std::move(columns));
  for (const auto& version : models) {
    std::vector<Cell> row = {
        Cell(version.name),
        Cell(fmt::format("v{}", version.version)),
        Cell(version.model),
        Cell(version.score ? HumanPercent(version.score->top1) : ""),
        Cell(HumanBytes(version.size_bytes)),
        Cell(HumanAge(NowMicros(), version.promoted_us)),
    };
    if (wide) {
      row.insert(row.end(), {Cell(Printable(version.promoted_by)), Cell(Printable(version.checkpoint)),
                             Cell(version.path.native())});
    }
    row.emplace_back(version.note);
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
}

int RunListOfModels(Context& context, const ListOfModelsOptions& options) {
  const auto registry = ResolveRegistry(options.folder, context.env());
  if (!registry) return context.Fail(registry.error());
  const auto all = ListModels(*registry);
  if (!all) return context.Fail({all.error()});
  if (IsDocument(options.format)) {
    auto document = nlohmann::ordered_json::array();
    for (const auto& version : *all) document.push_back(ModelJson(version));
    PrintDocument(context.out(), document, options.format);
    return 0;
  }
  if (all->empty()) {
    context.Say(fmt::format("no models in {} yet; imgcli model promote CKPT NAME puts one there",
                            registry->native()));
    return 0;
  }
  PrintModels(context, *all, options.format == OutputFormat::kWide);
  return 0;
}

int RunShowModel(Context& context, const ShowModelOptions& options) {
  const auto registry = ResolveRegistry(options.folder, context.env());
  if (!registry) return context.Fail(registry.error());
  const auto version = FindModel(*registry, options.reference);
  if (!version) return context.Fail({version.error()});
  const auto lineage = LineageOfModel(*version);
  if (!lineage) return context.Fail({lineage.error()});
  auto document = ModelJson(*version);
  if (!lineage->empty()) document["lineage"] = nlohmann::ordered_json::parse(*lineage, nullptr, false);
  PrintDocument(context.out(), document,
                options.format == OutputFormat::kTable ? OutputFormat::kYaml : options.format);
  return 0;
}

void AddRegistryOption(Command command, RegistryOption& option) {
  command
      .AddOption("--registry", option.folder,
                 "The registry's folder (default: IMGD_MODELS, or models: in the configuration file)")
      .ValueName("DIR");
}

}  // namespace

void AddModelCommands(Command app, Context& context) {
  Command model = app.AddSubcommand("model", "Keep named, numbered weights in a folder");
  model.NeedsSubcommand();
  model.Footer(
      "Examples:\n"
      "  imgcli model promote rn50:best resnet50-imagenet --registry /models\n"
      "  imgcli model list\n"
      "  imgcli model show resnet50-imagenet:v2");

  auto promote_options = std::make_shared<PromoteOptions>();
  Command promote = model.AddSubcommand("promote", "Make a checkpoint's weights the next version of NAME");
  promote.AddOption("CKPT", promote_options->reference, kCheckpointHelp).Required().ValueName("");
  promote.AddOption("NAME", promote_options->name, "The model's name in the registry")
      .Required()
      .ValueName("");
  promote.AddOption("--note", promote_options->note, "What is to be known of it").ValueName("TEXT");
  AddWhichWeights(promote, promote_options->weights);
  AddRegistryOption(promote, *promote_options);
  promote.Runs([&context, promote_options] { return RunPromote(context, *promote_options); });

  auto list_options = std::make_shared<ListOfModelsOptions>();
  Command list = model.AddSubcommand("list", "List all models and versions");
  AddRegistryOption(list, *list_options);
  AddOutputOption(list, list_options->format);
  list.Runs([&context, list_options] { return RunListOfModels(context, *list_options); });

  auto show_options = std::make_shared<ShowModelOptions>();
  Command show = model.AddSubcommand("show", "Show where a version comes from");
  show.AddOption("MODEL", show_options->reference, "NAME, or NAME:vN (default: its newest version)")
      .Required()
      .ValueName("");
  AddRegistryOption(show, *show_options);
  AddOutputOption(show, show_options->format, kPlainFormats);
  show.Runs([&context, show_options] { return RunShowModel(context, *show_options); });
}

}  // namespace imgd::cli
