#include "cli/dataset_look.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.h"
#include "cli/dataset_facts.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "common/files.h"
#include "trainer/data/convert_source.h"
#include "trainer/data/dataset.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/shard_look.h"
#include "trainer/data/shard_set.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

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

nlohmann::ordered_json LookJson(const std::string& folder, const data::Dataset& set) {
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

int Info(Context& context, const std::string& folder, OutputFormat format) {
  auto documents = nlohmann::ordered_json::array();
  for (const auto& path : SetsIn(folder)) {
    const auto set = data::OpenDataset(path);
    if (!set) return context.Fail({set.error()});
    if (format == OutputFormat::kTable) {
      PrintCounts(context, data::Shown(path), **set);
    } else {
      documents.push_back(LookJson(data::Shown(path), **set));
    }
  }
  if (format != OutputFormat::kTable) PrintDocument(context.out(), documents, format);
  return 0;
}

nlohmann::ordered_json LookJson(const std::string& file, const data::ShardLook& look) {
  nlohmann::ordered_json document = {{"file", file},
                                     {"form", look.form},
                                     {"bytes", look.bytes},
                                     {"images", look.images},
                                     {"note", look.note}};
  document["entries"] = nlohmann::ordered_json::array();
  for (const auto& entry : look.entries) {
    nlohmann::ordered_json one = {{"key", entry.key}};
    if (entry.label) one["label"] = *entry.label;
    if (!entry.class_name.empty()) one["class"] = entry.class_name;
    one["offset"] = entry.offset;
    one["bytes"] = entry.bytes;
    if (entry.facts) {
      one["format"] = NameOf(entry.facts->format);
      one["width"] = entry.facts->width;
      one["height"] = entry.facts->height;
      one["colours"] = NameOf(entry.facts->colours);
    }
    document["entries"].push_back(std::move(one));
  }
  return document;
}

std::string PixelsText(const std::optional<data::ImageFacts>& facts) {
  if (!facts || facts->width == 0) return "";
  return fmt::format("{}x{}", facts->width, facts->height);
}

std::string KindText(const std::optional<data::ImageFacts>& facts) {
  using data::ImageFacts;
  if (!facts || facts->format == ImageFacts::Format::kUnknown) return "";
  if (facts->format != ImageFacts::Format::kJpeg) return NameOf(facts->format);
  return fmt::format("{} {}{}", NameOf(facts->format), NameOf(facts->colours),
                     facts->progressive ? " progressive" : "");
}

void PrintLook(Context& context, const std::string& file, const data::ShardLook& look) {
  auto& out = context.out();
  const bool plain = look.form == "tar";
  out << fmt::format("{}: {}, {}, {}\n", Printable(data::Shown(file)), look.form,
                     Count(look.images, plain ? "file" : "image"), HumanBytes(look.bytes));
  if (!look.note.empty()) out << fmt::format("  {}\n", Printable(look.note));
  Table table({{"#", true},
               {.title = plain ? "NAME" : "KEY", .shrink = true},
               {"LABEL", true},
               {.title = "CLASS", .shrink = true},
               {"BYTES", true},
               {"PIXELS", true},
               {"KIND"},
               {"OFFSET", true}});
  for (size_t i = 0; i < look.entries.size(); ++i) {
    const auto& entry = look.entries[i];
    table.Add({Cell(std::to_string(i)), Cell(entry.key),
               Cell(entry.label ? std::to_string(*entry.label) : ""), Cell(entry.class_name),
               Cell(std::to_string(entry.bytes)), Cell(PixelsText(entry.facts)), Cell(KindText(entry.facts)),
               Cell(std::to_string(entry.offset))});
  }
  if (!look.entries.empty()) table.Print(out, context.terminal(), 2);
  if (look.images > look.entries.size())
    out << fmt::format("  and {} more (--limit 0 shows all)\n", look.images - look.entries.size());
}

nlohmann::ordered_json LookJson(const std::string& file, const data::SetDescription& set) {
  nlohmann::ordered_json document = {
      {"file", file}, {"form", "set"}, {"name", set.name}, {"classes", set.classes}};
  document["shards"] = nlohmann::ordered_json::array();
  for (const auto& shard : set.shards)
    document["shards"].push_back(
        {{"name", shard.name}, {"bytes", shard.bytes}, {"images", shard.images}, {"crc32c", shard.crc32c}});
  return document;
}

void PrintSet(Context& context, const std::string& file, const data::SetDescription& set, uint64_t limit) {
  constexpr size_t kClassesShown = 10;
  uint64_t images = 0;
  uint64_t bytes = 0;
  for (const auto& shard : set.shards) {
    images += shard.images;
    bytes += shard.bytes;
  }
  auto& out = context.out();
  out << fmt::format("{}: set '{}' of {}, {} in {}, {}\n", Printable(data::Shown(file)), Printable(set.name),
                     Count(set.shards.size(), "shard"), Count(images, "image"),
                     Count(set.classes.size(), "class"), HumanBytes(bytes));
  std::string classes;
  for (size_t c = 0; c < std::min(set.classes.size(), kClassesShown); ++c)
    classes += (c == 0 ? "" : ", ") + set.classes[c];
  if (set.classes.size() > kClassesShown)
    classes += fmt::format(" and {} more", set.classes.size() - kClassesShown);
  out << fmt::format("  classes: {}\n", Printable(classes));
  Table table({{.title = "SHARD", .shrink = true}, {"IMAGES", true}, {"BYTES", true}, {"CRC32C"}});
  const size_t shown = limit == 0 ? set.shards.size() : std::min<uint64_t>(limit, set.shards.size());
  for (size_t i = 0; i < shown; ++i) {
    const auto& shard = set.shards[i];
    table.Add({Cell(shard.name), Cell(std::to_string(shard.images)), Cell(std::to_string(shard.bytes)),
               Cell(shard.crc32c)});
  }
  table.Print(out, context.terminal(), 2);
  if (shown < set.shards.size())
    out << fmt::format("  and {} more (--limit 0 shows all)\n", set.shards.size() - shown);
}

int InspectSet(Context& context, const std::string& file, const InspectArguments& arguments) {
  const auto set = data::LookIntoDescription(file);
  if (!set) return context.Fail({set.error()});
  if (arguments.format == OutputFormat::kTable) {
    PrintSet(context, file, *set, arguments.limit);
  } else {
    PrintDocument(context.out(), LookJson(file, *set), arguments.format);
  }
  return 0;
}

void AddInfo(Command dataset, Context& context) {
  struct Options {
    std::string folder;
    OutputFormat format = OutputFormat::kTable;
  };
  auto options = std::make_shared<Options>();
  Command command = dataset.AddSubcommand("info", "Count the images of a data set by class");
  command.AddOption("DIR", options->folder, "A data set, or a folder with train/ and val/ of them")
      .Required()
      .ValueName("");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "Examples:\n"
      "  imgcli dataset info /data/shapes\n"
      "  imgcli dataset info /data/shapes/train -o json | jq '.[0].images'");
  command.Runs([&context, options] { return Info(context, options->folder, options->format); });
}

void AddSetArgument(Command command, std::string& where) {
  command.AddOption("SET", where, "A data set (docs/datasets.md), or a folder with train/ and val/ of them")
      .Required()
      .ValueName("");
}

void AddVerify(Command dataset, Context& context) {
  auto arguments = std::make_shared<VerifyArguments>();
  Command command =
      dataset.AddSubcommand("verify", "Check that a data set is whole, and name what is broken");
  command
      .AddOption("SET", arguments->where,
                 "A data set (docs/datasets.md), a folder with train/ and val/ of them, or dataset:NAME")
      .Required()
      .ValueName("");
  command.AddFlag("--decode", arguments->decode, "Decode every image");
  command.AddNumber("--classes", "How many classes there must be", 1, 1'000'000,
                    [arguments](uint64_t classes) { arguments->classes = classes; });
  command.AddFlag("--all", arguments->all, "Show all that is broken, not the first 20");
  command.AddNumber("--jobs", "Threads (default one for each core)", 1, 1024,
                    [arguments](uint64_t jobs) { arguments->jobs = static_cast<int>(jobs); });
  AddOutputOption(command, arguments->format, kPlainFormats);
  command.Footer(
      "Counts the images, and compares what there is to compare: checksums, indexes, missing shards,\n"
      "names that are there twice. Ends with 6 when something is broken.\n"
      "Of dataset:NAME, a set as imgd calls it, imgd keeps what was found (dataset show).\n\n"
      "Examples:\n"
      "  imgcli dataset verify --decode dataset:imagenet\n"
      "  imgcli dataset verify /data/shards/train\n"
      "  imgcli dataset verify --decode --classes 1000 /data/imagenet/val\n"
      "  imgcli dataset verify --decode --all /data/imagenet/train -o json | jq '.[].findings[].place'");
  command.Runs([&context, arguments] { return Verify(context, *arguments); });
}

void AddStats(Command dataset, Context& context) {
  auto arguments = std::make_shared<StatsArguments>();
  Command command =
      dataset.AddSubcommand("stats", "Balance of the classes, sizes and qualities of the images");
  AddSetArgument(command, arguments->where);
  command.AddNumber(
      "--sample", fmt::format("Images to look at, spread evenly; 0 for all (default {})", arguments->sample),
      0, UINT32_MAX, [arguments](uint64_t sample) { arguments->sample = sample; });
  command.AddNumber("--jobs", "Threads (default one for each core)", 1, 1024,
                    [arguments](uint64_t jobs) { arguments->jobs = static_cast<int>(jobs); });
  AddOutputOption(command, arguments->format, kPlainFormats);
  command.Footer(
      "Reads the images' headers and decodes nothing. The quality is libjpeg's (1 to 100) whose\n"
      "quantisation table is the nearest to the file's.\n\n"
      "Examples:\n"
      "  imgcli dataset stats /data/imagenet/train\n"
      "  imgcli dataset stats --sample 0 /data/shards/val -o json | jq '.[].width.median'");
  command.Runs([&context, arguments] { return Stats(context, *arguments); });
}

void AddInspect(Command dataset, Context& context) {
  auto arguments = std::make_shared<InspectArguments>();
  Command command = dataset.AddSubcommand("inspect", "Show what a shard holds, image by image");
  command.AddOption("FILE", arguments->file, "A shard, its index (.idx), or a set's shards.json")
      .Required()
      .ValueName("");
  command.AddNumber("--limit", fmt::format("Images to show; 0 for all (default {})", arguments->limit), 0,
                    UINT32_MAX, [arguments](uint64_t limit) { arguments->limit = limit; });
  AddOutputOption(command, arguments->format, kPlainFormats);
  command.Footer(
      "Labels are as in the file: those of TFRecords may count from 1. In an index or shard offsets\n"
      "are those of the images' bytes in the shard.\n\n"
      "Examples:\n"
      "  imgcli dataset inspect /data/shards/train/train-000000.tar\n"
      "  imgcli dataset inspect --limit 5 ILSVRC2012_img_train.tar\n"
      "  imgcli dataset inspect --limit 0 train-00000-of-01024 -o json | jq '.entries[].label'");
  command.Runs([&context, arguments] { return Inspect(context, *arguments); });
}

}  // namespace

int Inspect(Context& context, const InspectArguments& arguments) {
  std::error_code error;
  if (fs::is_directory(arguments.file, error)) {
    const fs::path description = fs::path(arguments.file) / data::kDescriptionName;
    if (fs::exists(description, error)) return InspectSet(context, description.string(), arguments);
    return context.Fail(
        {Error{.code = ErrorCode::kInvalidArgument,
               .message = fmt::format("{} is a folder without {}", arguments.file, data::kDescriptionName),
               .hint = "name one of its shards"}});
  }
  if (arguments.file.ends_with(".json")) return InspectSet(context, arguments.file, arguments);
  const auto look = data::LookIntoShard(arguments.file, arguments.limit == 0 ? UINT64_MAX : arguments.limit);
  if (!look) return context.Fail({look.error()});
  if (arguments.format == OutputFormat::kTable) {
    PrintLook(context, arguments.file, *look);
  } else {
    PrintDocument(context.out(), LookJson(arguments.file, *look), arguments.format);
  }
  return 0;
}

std::vector<std::string> SetsIn(const std::string& where) {
  std::vector<std::string> sets;
  for (const auto& part : PlacedPartsOf(where)) sets.push_back(part.where);
  return sets;
}

int JobsOf(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void AddLookCommands(Command dataset, Context& context) {
  AddInfo(dataset, context);
  AddVerify(dataset, context);
  AddStats(dataset, context);
  AddInspect(dataset, context);
}

}  // namespace imgd::cli
