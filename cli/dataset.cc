#include "cli/dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/synth.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

// What the words of the command line say, before it is looked at.
struct SynthArguments {
  data::SynthOptions options;
  int val_per_class = -1;
  int jobs = 0;
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
              "--size is '{}', which must be WIDTHxHEIGHT in pixels, such as 128x128", text);
}

// One line that is drawn over; nothing when standard error is no terminal.
class ProgressLine {
 public:
  ProgressLine() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

  void Show(uint64_t done, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_terminal_ || (done < total && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    fmt::print(stderr, "\rdrawing {}/{} images", done, total);
    std::fflush(stderr);
    drawn_ = true;
  }

  void End() const {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool on_terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

Status Synth(const SynthArguments& arguments) {
  data::SynthOptions options = arguments.options;
  IMGD_ASSIGN(const Size size, ParseSize(arguments.size));
  options.width = size.width;
  options.height = size.height;
  options.val_per_class =
      arguments.val_per_class < 0 ? std::max(options.per_class / 5, 1) : arguments.val_per_class;
  options.jobs = arguments.jobs != 0 ? arguments.jobs
                                     : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ProgressLine progress;
  const Status status = data::WriteSynthDataset(
      options, arguments.out, [&](uint64_t done, uint64_t total) { progress.Show(done, total); });
  progress.End();
  IMGD_TRY(status);
  fmt::print("{}: {} classes, {} training and {} validation images of {} x {} pixels\n", arguments.out,
             options.classes, int64_t{options.classes} * options.per_class,
             int64_t{options.classes} * options.val_per_class, options.width, options.height);
  return {};
}

void PrintCounts(const std::string& title, const data::ImageFolder& set) {
  std::vector<size_t> counts(set.classes().size());
  for (size_t i = 0; i < set.size(); ++i) ++counts[static_cast<size_t>(set.label(i))];
  size_t width = 5;
  for (const auto& name : set.classes()) width = std::max(width, name.size());
  fmt::print("{}: {} images in {} classes\n", title, set.size(), set.classes().size());
  for (size_t c = 0; c < counts.size(); ++c)
    fmt::print("  {:<{}}  {:>8}\n", set.classes()[c], width, counts[c]);
}

// A folder of classes, or one with train/ and val/ in it.
Status Info(const std::string& folder) {
  std::vector<fs::path> sets;
  for (const char* split : {"train", "val"}) {
    std::error_code ignored;
    if (fs::is_directory(fs::path(folder) / split, ignored)) sets.push_back(fs::path(folder) / split);
  }
  if (sets.empty()) sets.emplace_back(folder);
  for (const auto& path : sets) {
    IMGD_ASSIGN(const auto set, data::ImageFolder::Open(path));
    PrintCounts(path.string(), set);
  }
  return {};
}

int Finish(const Status& status) {
  if (status) return 0;
  fmt::print(stderr, "error: {}\n", status.error().ToString());
  return ExitCodeOf(status.error().code);
}

void AddSynth(CLI::App& dataset, int& exit_code) {
  auto arguments = std::make_shared<SynthArguments>();
  auto* command =
      dataset.add_subcommand("synth", "Draw a data set of photographs of shapes, as an ImageFolder");
  auto& options = arguments->options;
  command->add_option("OUT", arguments->out, "New folder; gets train/, val/ and dataset.json")->required();
  command->add_option("--classes", options.classes, "Classes, 1 to 1000")->capture_default_str();
  command->add_option("--per-class", options.per_class, "Training images of each class")
      ->capture_default_str();
  command->add_option("--val-per-class", arguments->val_per_class,
                      "Validation images of each class [a fifth of --per-class]");
  command->add_option("--size", arguments->size, "WIDTHxHEIGHT in pixels")->capture_default_str();
  command->add_option("--seed", options.seed, "Same seed and options, same bytes")->capture_default_str();
  command->add_option("--quality", options.quality, "JPEG quality, 1 to 100")->capture_default_str();
  command->add_option("--jobs", arguments->jobs, "Threads that draw [one for each core]");
  command->callback([arguments, &exit_code] { exit_code = Finish(Synth(*arguments)); });
}

void AddInfo(CLI::App& dataset, int& exit_code) {
  auto folder = std::make_shared<std::string>();
  auto* command = dataset.add_subcommand("info", "Count the images of an ImageFolder by class");
  command->add_option("DIR", *folder, "One folder for each class, or train/ and val/ of them")->required();
  command->callback([folder, &exit_code] { exit_code = Finish(Info(*folder)); });
}

}  // namespace

void AddDatasetCommands(CLI::App& app, int& exit_code) {
  auto* dataset = app.add_subcommand("dataset", "Make and look at data sets");
  dataset->require_subcommand(1);
  AddSynth(*dataset, exit_code);
  AddInfo(*dataset, exit_code);
}

}  // namespace imgd::cli
