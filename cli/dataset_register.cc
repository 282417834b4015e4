#include "cli/dataset_register.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/dataset_facts.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/words.h"
#include "common/url.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

struct RegisterArguments {
  std::string name;
  std::string address;
  bool replace = false;
  bool no_check = false;
  OutputFormat format = OutputFormat::kTable;
};

int Register(Context& context, const RegisterArguments& arguments) {
  v1::RegisterDatasetRequest request;
  auto& dataset = *request.mutable_dataset();
  dataset.set_name(arguments.name);
  dataset.set_owner(OwnerName(context.env()));
  request.set_replace(arguments.replace);
  // Jobs run elsewhere: a path must mean the same there.
  std::string address = arguments.address;
  if (!IsUrl(address) && !address.empty()) address = fs::absolute(address).lexically_normal().string();
  dataset.set_address(address);
  v1::DatasetFacts facts;
  if (!arguments.no_check) {
    auto contents = ContentsOf(PlacedPartsOf(address));
    if (!contents) {
      Error error = contents.error();
      if (error.hint.empty()) error.hint = "--no-check registers what cannot be seen from this machine";
      return context.Fail({error});
    }
    for (const auto& part : contents->parts()) dataset.set_images(dataset.images() + part.images());
    dataset.set_classes(contents->parts(0).class_count());
    *facts.mutable_contents() = std::move(*contents);
  }
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->RegisterDataset(request);
  if (!answer) return context.Fail(answer.error());
  if (facts.has_contents()) ReportFacts(context, **client, arguments.name, address, std::move(facts));
  if (arguments.format != OutputFormat::kTable) {
    PrintDocument(context.out(), ToJson(answer->dataset()), arguments.format);
    return 0;
  }
  const auto& stored = answer->dataset();
  context.out() << fmt::format(
      "{}: {}{}{}\n", Printable(stored.name()), Printable(stored.address()),
      stored.images() == 0
          ? ""
          : fmt::format(", {} in {}", Count(stored.images(), "image"), Count(stored.classes(), "class")),
      answer->existed() ? " (registered before)" : "");
  context.Say(
      fmt::format("a job uses it as dataset:{0}, or dataset:{0}/train for a folder in it", stored.name()),
      Style::kDim);
  return 0;
}

int List(Context& context, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->ListDatasets();
  if (!answer) return context.Fail(answer.error());
  if (IsDocument(format)) {
    PrintDocument(context.out(), ToJsonArray(answer->datasets()), format);
    return 0;
  }
  if (answer->datasets().empty()) {
    context.Say("no data set has a name yet; imgcli dataset register NAME WHERE gives one");
    return 0;
  }
  const bool wide = format == OutputFormat::kWide;
  std::vector<Column> columns = {{"NAME"}, {"IMAGES", true}, {"CLASSES", true}, {"OWNER"}, {"AGE", true}};
  if (wide) columns.push_back({"REGISTERED"});
  columns.push_back({.title = "ADDRESS", .shrink = !wide});
  Table table(std::move(columns));
  const int64_t now_us = NowMicros();
  for (const auto& set : answer->datasets()) {
    std::vector<Cell> row = {Printable(set.name()), set.images() == 0 ? "" : std::to_string(set.images()),
                             set.classes() == 0 ? "" : std::to_string(set.classes()), Printable(set.owner()),
                             HumanAge(now_us, set.registered_us())};
    if (wide) row.emplace_back(LocalTime(set.registered_us()));
    row.emplace_back(Printable(set.address()) +
                     (set.made_by() == 0 ? "" : fmt::format(" (job {} is to make it)", set.made_by())));
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
  return 0;
}

int Forget(Context& context, const std::string& name) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->RemoveDataset(name);
  if (!answer) return context.Fail(answer.error());
  context.out() << fmt::format("{}: forgotten; the data are as they were\n", Printable(name));
  return 0;
}

}  // namespace

void AddRegister(Command dataset, Context& context) {
  auto arguments = std::make_shared<RegisterArguments>();
  Command command = dataset.AddSubcommand("register", "Give a data set a name that jobs use");
  command.AddOption("NAME", arguments->name, "Such as imagenet-1k").Required().ValueName("");
  command
      .AddOption("WHERE", arguments->address,
                 "Folder that the nodes share, pattern of shards, or URL; it may hold train/ and val/")
      .Required()
      .ValueName("");
  command.AddFlag("--replace", arguments->replace, "The name may stand for another address until now");
  command.AddFlag("--no-check", arguments->no_check, "Don't open it from here, nor count its images");
  AddOutputOption(command, arguments->format, kPlainFormats);
  command.Footer(
      "A job says dataset:NAME in place of the address, and is stored with the address: a name that moves\n"
      "later changes no job.\n\n"
      "Examples:\n"
      "  imgcli dataset register imagenet /data/shards/imagenet\n"
      "  imgcli submit job.yaml --set data.train=dataset:imagenet/train --set data.val=dataset:imagenet/val");
  command.Runs([&context, arguments] { return Register(context, *arguments); });

  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command list = dataset.AddSubcommand("list", "List the data sets that have a name");
  AddOutputOption(list, *format);
  list.Footer("Examples:\n  imgcli dataset list");
  list.Runs([&context, format] { return List(context, *format); });

  AddShowDataset(dataset, context);

  auto name = std::make_shared<std::string>();
  Command forget = dataset.AddSubcommand("forget", "Take a data set's name away; its files stay");
  forget.AddOption("NAME", *name, "As it was registered").Required().ValueName("");
  forget.Footer("Examples:\n  imgcli dataset forget imagenet-old");
  forget.Runs([&context, name] { return Forget(context, *name); });
}

}  // namespace imgd::cli
