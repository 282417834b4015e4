#include "cli/recipes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/plot.h"
#include "cli/serialize.h"
#include "common/job_changes.h"
#include "common/phases.h"
#include "common/schedule.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr uint64_t kImageNetImages = 1'281'167;
constexpr int kRatePlotHeight = 8;
constexpr int kOtherPlotHeight = 5;
constexpr int kMostPlotWidth = 72;

struct ShowOptions {
  std::string name;
  std::vector<std::string> sets;
  uint64_t images = kImageNetImages;
  bool file = false;
  OutputFormat format = OutputFormat::kTable;
};

/// One epoch, at its start.
struct EpochPlan {
  uint64_t epoch = 0;
  double learning_rate = 0;
  int image_size = 0;
  int global_batch = 0;
  uint64_t steps = 0;
};

std::vector<EpochPlan> PlanOf(const JobSpec& spec, uint64_t images) {
  const Phases phases(spec, images);
  const Schedule schedule(spec, phases);
  std::vector<EpochPlan> plan;
  for (const Phase& phase : phases.all()) {
    for (uint64_t epoch = phase.first_epoch; epoch < phase.end_epoch; ++epoch) {
      const uint64_t step = phase.first_step + (epoch - phase.first_epoch) * phase.steps_per_epoch;
      plan.push_back({.epoch = epoch,
                      .learning_rate = schedule.LearningRate(static_cast<double>(step)),
                      .image_size = phase.image_size,
                      .global_batch = phase.global_batch,
                      .steps = phase.steps_per_epoch});
    }
  }
  return plan;
}

/// A recipe lacks the one thing that only its user knows.
tl::expected<JobSpec, Errors> SpecOf(const Recipe& recipe, std::vector<std::string> sets) {
  if (std::none_of(sets.begin(), sets.end(), [](const auto& s) { return s.starts_with("data.train="); }))
    sets.emplace_back("data.train=/data/train");
  return ParseChangedJobFile(recipe.yaml, fmt::format("{}{}", kRecipeScheme, recipe.name), sets);
}

/// What the table says of an epoch besides its number.
std::vector<std::string> Settings(const EpochPlan& epoch) {
  return {fmt::format("{:.5g}", epoch.learning_rate), std::to_string(epoch.image_size),
          std::to_string(epoch.global_batch), std::to_string(epoch.steps)};
}

void PrintPlot(Context& context, std::string_view title, const std::vector<double>& values, int height) {
  const int width = context.terminal().Width();
  context.out() << fmt::format("\n{} by epoch\n{}\n", title,
                               Plot(values, std::min(width > 0 ? width : kMostPlotWidth, kMostPlotWidth),
                                    height, context.terminal().utf8));
}

/// The rate, and what else changes.
void PrintPlots(Context& context, const std::vector<EpochPlan>& plan) {
  std::vector<double> rates, sizes, batches;
  for (const auto& epoch : plan) {
    rates.push_back(epoch.learning_rate);
    sizes.push_back(epoch.image_size);
    batches.push_back(epoch.global_batch);
  }
  PrintPlot(context, "learning rate", rates, kRatePlotHeight);
  for (const auto& [title, values] : {std::pair("image size", &sizes), {"global batch", &batches}}) {
    const bool changes =
        std::adjacent_find(values->begin(), values->end(), std::not_equal_to<>()) != values->end();
    if (changes) PrintPlot(context, title, *values, kOtherPlotHeight);
  }
}

void PrintPlan(Context& context, const JobSpec& spec, const std::vector<EpochPlan>& plan) {
  auto& out = context.out();
  const auto line = [&out](const char* title, const std::string& text) {
    if (!text.empty()) out << fmt::format("{:<9} {}\n", title, text);
  };
  out << Paint(spec.about.title, Style::kBold, context.terminal().color) << '\n';
  line("source", spec.about.source);
  line("result", spec.about.result);
  line("hardware", spec.about.hardware);
  uint64_t steps = 0;
  for (const auto& epoch : plan) steps += epoch.steps;
  line("model",
       fmt::format("{}, {}, {} on {} x {} ranks, {} steps", spec.model.name, spec.train.precision,
                   spec.optimizer.kind, spec.resources.max_nodes, spec.resources.ranks_per_node, steps));
  PrintPlots(context, plan);
  // Epochs that are alike share a line.
  Table table({{"EPOCHS", true}, {"LR", true}, {"SIZE", true}, {"BATCH", true}, {"STEPS", true}});
  for (size_t i = 0, end = 0; i < plan.size(); i = end) {
    for (end = i + 1; end < plan.size() && Settings(plan[end]) == Settings(plan[i]);) ++end;
    const uint64_t last = plan[end - 1].epoch;
    std::vector<Cell> row = {
        Cell(i + 1 == end ? std::to_string(last) : fmt::format("{}-{}", plan[i].epoch, last))};
    for (auto& text : Settings(plan[i])) row.emplace_back(std::move(text));
    table.Add(std::move(row));
  }
  table.Print(out, context.terminal());
}

nlohmann::ordered_json RecipeJson(const Recipe& recipe, const JobSpec& spec) {
  return {{"name", recipe.name},         {"title", spec.about.title},       {"source", spec.about.source},
          {"result", spec.about.result}, {"hardware", spec.about.hardware}, {"model", spec.model.name},
          {"epochs", spec.train.epochs}};
}

int RunShow(Context& context, const ShowOptions& options) {
  const auto recipe = FindRecipe(options.name);
  if (!recipe) return context.Fail({recipe.error()});
  if (options.file) {
    const auto text = ChangeJobText(recipe->yaml, options.name, JobChangesOf(options.sets));
    if (!text) return context.Fail({text.error()});
    context.out() << *text;
    return 0;
  }
  const auto spec = SpecOf(*recipe, options.sets);
  if (!spec) return context.Fail(spec.error());
  const auto plan = PlanOf(*spec, options.images);
  if (options.format == OutputFormat::kTable) {
    PrintPlan(context, *spec, plan);
    return 0;
  }
  auto document = RecipeJson(*recipe, *spec);
  document["plan"] = nlohmann::ordered_json::array();
  for (const auto& epoch : plan) {
    document["plan"].push_back({{"epoch", epoch.epoch},
                                {"learning_rate", epoch.learning_rate},
                                {"image_size", epoch.image_size},
                                {"global_batch", epoch.global_batch},
                                {"steps", epoch.steps}});
  }
  PrintDocument(context.out(), document, options.format);
  return 0;
}

int RunList(Context& context, OutputFormat format) {
  const bool wide = format == OutputFormat::kWide;
  std::vector<Column> columns = {
      {"NAME"}, {.title = "TITLE", .shrink = !wide}, {.title = "RESULT", .shrink = !wide}};
  if (wide)
    columns.insert(columns.end(),
                   {Column{"MODEL"}, Column{"EPOCHS", true}, Column{"HARDWARE"}, Column{"SOURCE"}});
  Table table(std::move(columns));
  auto document = nlohmann::ordered_json::array();
  for (const Recipe& recipe : Recipes()) {
    const auto spec = SpecOf(recipe, {});
    if (!spec) return context.Fail(spec.error());
    std::vector<Cell> row = {std::string(recipe.name), spec->about.title, spec->about.result};
    if (wide) {
      row.insert(row.end(), {Cell(spec->model.name), Cell(std::to_string(spec->train.epochs)),
                             Cell(spec->about.hardware), Cell(spec->about.source)});
    }
    table.Add(std::move(row));
    document.push_back(RecipeJson(recipe, *spec));
  }
  if (IsDocument(format)) {
    PrintDocument(context.out(), document, format);
  } else {
    table.Print(context.out(), context.terminal());
  }
  return 0;
}

void AddShow(Command recipes, Context& context) {
  auto options = std::make_shared<ShowOptions>();
  Command show =
      recipes.AddSubcommand("show", "Print and plot what a recipe does in each epoch, without running it");
  show.AddOption("NAME", options->name, "The recipe's name").Required().ValueName("");
  show.AddOption("--set", options->sets, "Change a field of it; may be repeated")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  show.AddNumber("--images", "Images in the training set (default: ImageNet's, 1281167)", 1,
                 1'000'000'000'000, [options](uint64_t images) { options->images = images; });
  show.AddFlag("--file", options->file, "Print the job file itself, with the changes");
  AddOutputOption(show, options->format, kPlainFormats);
  show.Runs([&context, options] { return RunShow(context, *options); });
}

}  // namespace

Result<Recipe> FindRecipe(std::string_view name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : Recipes()) {
    if (recipe.name == name) return recipe;
    names.emplace_back(recipe.name);
  }
  Error error{.code = ErrorCode::kNotFound,
              .message = fmt::format("no recipe '{}'; there are: {}", name, fmt::join(names, ", "))};
  if (const auto nearest = NearestWord(name, names)) error.hint = fmt::format("did you mean '{}'?", *nearest);
  return tl::unexpected(std::move(error));
}

void AddRecipesCommand(Command app, Context& context) {
  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command recipes = app.AddSubcommand("recipes", "List the ready job files, whose results are known");
  AddOutputOption(recipes, *format);
  recipes.Footer(
      "Examples:\n"
      "  imgcli recipes\n"
      "  imgcli recipes show rn50-90ep\n"
      "  imgcli recipes show rn50-90ep --file > job.yaml\n"
      "  imgcli submit recipe:rn50-90ep --set data.train=/data/train --set data.val=/data/val");
  recipes.Runs([&context, format] { return RunList(context, *format); });
  AddShow(recipes, context);
}

}  // namespace imgd::cli
