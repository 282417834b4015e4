#include <algorithm>
#include <charconv>
#include <thread>

#include "cli/commands.h"
#include "cli/dataset_convert.h"
#include "cli/dataset_fetch.h"
#include "cli/dataset_look.h"
#include "cli/dataset_register.h"
#include "cli/dataset_serve.h"
#include "cli/format.h"
#include "cli/progress_line.h"
#include "trainer/data/synth.h"

namespace imgd::cli {
namespace {

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

void AddSynth(Command dataset, Context& context) {
  auto arguments = std::make_shared<SynthArguments>();
  auto& options = arguments->options;
  Command command =
      dataset.AddSubcommand("synth", "Draw a data set of photographs of shapes, as an ImageFolder");
  command.AddOption("OUT", arguments->out, "New folder; gets train/, val/ and dataset.json")
      .Required()
      .ValueName("");
  const auto number = [&](const char* name, const std::string& help, int least, int most, auto& target) {
    command.AddNumber(name, help, static_cast<uint64_t>(least), static_cast<uint64_t>(most),
                      [arguments, &target](uint64_t value) { target = static_cast<int>(value); });
  };
  number("--classes", fmt::format("Classes, 1 to 1000 (default {})", options.classes), 1, 1000,
         options.classes);
  number("--per-class", fmt::format("Training images of each class (default {})", options.per_class), 1,
         1'000'000, options.per_class);
  number("--val-per-class", "Validation images of each class; 0 for no val/ (default a fifth of --per-class)",
         0, 1'000'000, arguments->val_per_class);
  command.AddOption("--size", arguments->size, "In pixels, each side 16 to 4096 (default 128x128)")
      .ValueName("WIDTHxHEIGHT");
  command.AddNumber("--seed", "Same seed and options, same bytes (default 0)", 0, UINT64_MAX,
                    [arguments](uint64_t seed) { arguments->options.seed = seed; });
  number("--quality", fmt::format("JPEG quality, 1 to 100 (default {})", options.quality), 1, 100,
         options.quality);
  number("--jobs", "Threads that draw (default one for each core)", 1, 1024, arguments->jobs);
  command.Footer(
      "OUT appears when it is complete; after Ctrl-C nothing is left of it.\n\n"
      "Examples:\n"
      "  imgcli dataset synth /data/shapes\n"
      "  imgcli dataset synth --classes 100 --per-class 500 --size 64x64 --seed 7 /data/shapes100\n"
      "  imgcli submit job.yaml --set data.train=/data/shapes/train --set data.val=/data/shapes/val");
  command.Runs([&context, arguments] { return Synth(context, *arguments); });
}

}  // namespace

void AddDatasetCommands(Command app, Context& context) {
  Command dataset = app.AddSubcommand("dataset", "Draw, convert and check data sets");
  dataset.NeedsSubcommand();
  dataset.Footer(
      "Examples:\n"
      "  imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /data/shapes\n"
      "  imgcli dataset info /data/shapes\n"
      "  imgcli dataset verify --decode /data/shapes/train");
  AddSynth(dataset, context);
  AddConvert(dataset, context);
  AddLookCommands(dataset, context);
  AddFetch(dataset, context);
  AddServe(dataset, context);
  AddRegister(dataset, context);
}

}  // namespace imgd::cli
