#include "cli/dataset_convert.h"

#include <charconv>
#include <limits>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/progress_line.h"
#include "trainer/data/convert.h"
#include "trainer/data/dataset.h"

namespace imgd::cli {
namespace {

struct ConvertArguments {
  data::ConvertOptions options;
  std::string shard_size;
  std::string to = "webdataset";
  std::string source;
  std::string out;
  std::optional<int> jobs;
};

/// "256MB", "1GiB", "4096": decimal and binary units.
Result<uint64_t> ParseBytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"kB", 1'000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"KiB", 1ULL << 10},
                                    {"MiB", 1ULL << 20},
                                    {"GiB", 1ULL << 30}};
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(parsed.ptr, static_cast<size_t>(text.data() + text.size() - parsed.ptr));
  for (const auto& known : kUnits) {
    if (parsed.ec != std::errc() || unit != known.name || number == 0) continue;
    if (number <= std::numeric_limits<uint64_t>::max() / known.bytes) return number * known.bytes;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--shard-size: found '{}' where a size such as 256MB or 1GiB is expected", text);
}

int Convert(Context& context, const ConvertArguments& arguments) {
  // Ctrl-C ends the writing between two images; finished shards stay, and the same command goes on with the
  // rest.
  context.FollowUntilInterrupted();
  data::ConvertOptions options = arguments.options;
  options.jobs = arguments.jobs.value_or(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  if (!arguments.shard_size.empty()) {
    const auto bytes = ParseBytes(arguments.shard_size);
    if (!bytes) return context.Fail({bytes.error()});
    options.shard_bytes = *bytes;
  }
  const auto set = data::OpenDataset(arguments.source);
  if (!set) return context.Fail({set.error()});
  ProgressLine progress(context, "writing");
  const auto result = data::WriteShards(**set, options, arguments.out, [&](uint64_t done, uint64_t total) {
    progress.Show(done, total);
    return !context.interrupt().Triggered();
  });
  progress.End();
  if (!result) return context.Fail({result.error()});
  context.out() << fmt::format(
      "{}: {} in {}, {}{}\n", Printable(arguments.out), Count(result->images, "image"),
      Count(result->shards, "shard"), HumanBytes(result->bytes),
      result->kept == 0 ? "" : fmt::format("; {} of them were there already", result->kept));
  return 0;
}

}  // namespace

void AddConvert(Command dataset, Context& context) {
  auto arguments = std::make_shared<ConvertArguments>();
  auto& options = arguments->options;
  Command command = dataset.AddSubcommand("convert", "Write a data set as WebDataset shards with an index");
  command
      .AddOption("SRC", arguments->source,
                 "A folder with one folder for each class, or shards (docs/job-file.md)")
      .Required()
      .ValueName("");
  command.AddOption("OUT", arguments->out, "Folder for the shards").Required().ValueName("");
  command.AddOption("--to", arguments->to, "Form to write: webdataset")
      .OneOf({"webdataset"})
      .ValueName("FORM");
  command.AddOption("--name", options.name, "Shards are NAME-000000.tar and so on (default train)")
      .ValueName("NAME");
  command.AddNumber("--shards", "How many shards (default by --shard-size)", 1, 1'000'000,
                    [arguments](uint64_t shards) { arguments->options.shards = shards; });
  command.AddOption("--shard-size", arguments->shard_size, "About how large a shard is (default 256MiB)")
      .ValueName("SIZE");
  command.AddNumber("--seed", "Of the order in which images are put into shards (default 0)", 0, UINT64_MAX,
                    [arguments](uint64_t seed) { arguments->options.seed = seed; });
  command.AddNumber("--jobs", "Threads that write (default one for each core)", 1, 1024,
                    [arguments](uint64_t jobs) { arguments->jobs = static_cast<int>(jobs); });
  command.Footer(
      "The files of the images are taken as they are, in a shuffled order; the same set and options\n"
      "give the same bytes at any --jobs. After Ctrl-C the same command goes on where it stopped.\n\n"
      "Examples:\n"
      "  imgcli dataset convert /data/imagenet/train /data/shards/train\n"
      "  imgcli dataset convert --name val --shards 8 /data/imagenet/val /data/shards/val\n"
      "  imgcli submit job.yaml --set data.train=/data/shards/train --set data.val=/data/shards/val");
  command.Runs([&context, arguments] { return Convert(context, *arguments); });
}

}  // namespace imgd::cli
