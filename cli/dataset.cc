#include "trainer/data/dataset.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

#include "cli/commands.h"
#include "cli/dataset_convert.h"
#include "cli/dataset_fetch.h"
#include "cli/dataset_serve.h"
#include "cli/format.h"
#include "cli/progress_line.h"
#include "cli/serialize.h"
#include "trainer/data/synth.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

// What the words of the command line say, before it is looked at.
struct SynthArguments {
  data::SynthOptions options;
  std::optional<int> val_per_class;
  std::optional<int> jobs;
  std::string size = "128x128";
  std::string out;
};

struct Size {
  int width = 0;
  int height = 0;
};

Result<Size> ParseSize(const std::string& text) {
  Size size;
  const char* end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  if (width.ec == std::errc() && width.ptr != end && (*width.ptr == 'x' || *width.ptr == 'X')) {
    const auto height = std::from_chars(width.ptr + 1, end, size.height);
    if (height.ec == std::errc() && height.ptr == end) return size;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--size: found '{}' where WIDTHxHEIGHT in pixels, such as 128x128, is expected", text);
}

int Synth(Context& context, const SynthArguments& arguments) {
  // Ctrl-C ends the drawing between two pictures, and nothing of it is left.
  context.FollowUntilInterrupted();
  data::SynthOptions options = arguments.options;
  const auto size = ParseSize(arguments.size);
  if (!size) return context.Fail({size.error()});
  options.width = size->width;
  options.height = size->height;
  options.val_per_class = arguments.val_per_class.value_or(std::max(options.per_class / 5, 1));
  options.jobs = arguments.jobs.value_or(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  ProgressLine progress(context, "drawing");
  const Status status = data::WriteSynthDataset(options, arguments.out, [&](uint64_t done, uint64_t total) {
    progress.Show(done, total);
    return !context.interrupt().Triggered();
  });
  progress.End();
  if (!status) return context.Fail({status.error()});
  const auto images = [&](int per_class) {
    return static_cast<uint64_t>(options.classes) * static_cast<uint64_t>(per_class);
  };
  context.out() << fmt::format("{}: {}, {} training and {} validation images of {} x {} pixels\n",
                               Printable(arguments.out), Count(images(1), "class"), images(options.per_class),
                               images(options.val_per_class), options.width, options.height);
  return 0;
}

std::vector<uint64_t> CountsOf(const data::Dataset& set) {
  std::vector<uint64_t> counts(set.classes().size());
  for (size_t i = 0; i < set.size(); ++i) ++counts[static_cast<size_t>(set.label(i))];
  return counts;
}

void PrintCounts(Context& context, const std::string& title, const data::Dataset& set) {
  context.out() << fmt::format("{}: {} in {}\n", Printable(title), Count(set.size(), "image"),
                               Count(set.classes().size(), "class"));
  Table table({{.title = "CLASS", .shrink = true}, {"IMAGES", true}});
  const auto counts = CountsOf(set);
  for (size_t c = 0; c < counts.size(); ++c)
    table.Add({Cell(set.classes()[c]), Cell(std::to_string(counts[c]))});
  table.Print(context.out(), context.terminal(), 2);
}

nlohmann::ordered_json ToJson(const std::string& folder, const data::Dataset& set) {
  nlohmann::ordered_json document;
  document["folder"] = folder;
  document["images"] = set.size();
  document["classes"] = nlohmann::ordered_json::array();
  const auto counts = CountsOf(set);
  for (size_t c = 0; c < counts.size(); ++c) {
    document["classes"].push_back({{"name", set.classes()[c]}, {"images", counts[c]}});
  }
  return document;
}

// A folder of classes, or one with train/ and val/ in it.
int Info(Context& context, const std::string& folder, OutputFormat format) {
  std::vector<fs::path> sets;
  for (const char* split : {"train", "val"}) {
    std::error_code ignored;
    if (fs::is_directory(fs::path(folder) / split, ignored)) sets.push_back(fs::path(folder) / split);
  }
  if (sets.empty()) sets.emplace_back(folder);
  auto documents = nlohmann::ordered_json::array();
  for (const auto& path : sets) {
    const auto set = data::OpenDataset(path);
    if (!set) return context.Fail({set.error()});
    if (format == OutputFormat::kTable) {
      PrintCounts(context, path.string(), **set);
    } else {
      documents.push_back(ToJson(path.string(), **set));
    }
  }
  if (format != OutputFormat::kTable) PrintDocument(context.out(), documents, format);
  return 0;
}

void AddSynth(CLI::App& dataset, Context& context) {
  auto arguments = std::make_shared<SynthArguments>();
  auto& options = arguments->options;
  auto* command =
      dataset.add_subcommand("synth", "Draw a data set of photographs of shapes, as an ImageFolder");
  command->add_option("OUT", arguments->out, "New folder; gets train/, val/ and dataset.json")
      ->required()
      ->type_name("");
  const auto number = [&](const char* name, const std::string& help, int least, int most, auto& target) {
    AddNumberOption(*command, name, help, static_cast<uint64_t>(least), static_cast<uint64_t>(most),
                    [arguments, &target](uint64_t value) { target = static_cast<int>(value); });
  };
  number("--classes", fmt::format("Classes, 1 to 1000 (default {})", options.classes), 1, 1000,
         options.classes);
  number("--per-class", fmt::format("Training images of each class (default {})", options.per_class), 1,
         1'000'000, options.per_class);
  number("--val-per-class", "Validation images of each class; 0 for no val/ (default a fifth of --per-class)",
         0, 1'000'000, arguments->val_per_class);
  command->add_option("--size", arguments->size, "In pixels, each side 16 to 4096 (default 128x128)")
      ->type_name("WIDTHxHEIGHT");
  AddNumberOption(*command, "--seed", "Same seed and options, same bytes (default 0)", 0, UINT64_MAX,
                  [arguments](uint64_t seed) { arguments->options.seed = seed; });
  number("--quality", fmt::format("JPEG quality, 1 to 100 (default {})", options.quality), 1, 100,
         options.quality);
  number("--jobs", "Threads that draw (default one for each core)", 1, 1024, arguments->jobs);
  command->footer(
      "OUT appears when it is complete; after Ctrl-C nothing is left of it.\n\n"
      "Examples:\n"
      "  imgcli dataset synth /data/shapes\n"
      "  imgcli dataset synth --classes 100 --per-class 500 --size 64x64 --seed 7 /data/shapes100\n"
      "  imgcli submit job.yaml --set data.train=/data/shapes/train --set data.val=/data/shapes/val");
  command->callback([&context, arguments] {
    context.command = [&context, arguments] { return Synth(context, *arguments); };
  });
}

void AddInfo(CLI::App& dataset, Context& context) {
  struct Options {
    std::string folder;
    OutputFormat format = OutputFormat::kTable;
  };
  auto options = std::make_shared<Options>();
  auto* command = dataset.add_subcommand("info", "Count the images of an ImageFolder by class");
  command->add_option("DIR", options->folder, "One folder for each class, or train/ and val/ of them")
      ->required()
      ->type_name("");
  AddOutputOption(*command, options->format, kPlainFormats);
  command->footer(
      "Examples:\n"
      "  imgcli dataset info /data/shapes\n"
      "  imgcli dataset info /data/shapes/train -o json | jq '.[0].images'");
  command->callback([&context, options] {
    context.command = [&context, options] { return Info(context, options->folder, options->format); };
  });
}

}  // namespace

void AddDatasetCommands(CLI::App& app, Context& context) {
  auto* dataset = app.add_subcommand("dataset", "Draw data sets, and count the images of one");
  dataset->require_subcommand(1);
  dataset->footer(
      "Examples:\n"
      "  imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /data/shapes\n"
      "  imgcli dataset info /data/shapes");
  AddSynth(*dataset, context);
  AddConvert(*dataset, context);
  AddFetch(*dataset, context);
  AddServe(*dataset, context);
  AddInfo(*dataset, context);
}

}  // namespace imgd::cli
