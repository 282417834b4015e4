#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/dataset_register.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/sheet.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int kFindingsShown = 20;
constexpr int kClassesShown = 20;

std::string ProgressText(Context& context, const v1::DatasetProgress& progress, int64_t now_us) {
  const double ratio = progress.total() == 0
                           ? 0
                           : static_cast<double>(progress.done()) / static_cast<double>(progress.total());
  std::string text = fmt::format("{}{}{} {}", Printable(progress.doing()), progress.part().empty() ? "" : " ",
                                 Printable(progress.part()), Bar(ratio, 24, context.terminal().utf8));
  text += fmt::format(" {}", HumanPercent(ratio));
  if (progress.doing() != "verifying")
    text += fmt::format(", {} of {}", progress.done(), Count(progress.total(), "image"));
  if (progress.shards() > 0)
    text += fmt::format(", {} of {}", progress.shards_done(), Count(progress.shards(), "shard"));
  return text + fmt::format(" ({} ago, job {})", HumanAge(now_us, progress.time_us()), progress.job_id());
}

std::string VerifiedText(const v1::DatasetFacts& facts, const std::string& name, int64_t now_us) {
  if (!facts.has_verification())
    return fmt::format("never (imgcli dataset verify dataset:{} does)", Printable(name));
  const auto& found = facts.verification();
  std::string text =
      fmt::format("{}, by {}, version {}: {}", WhenText(found.time_us(), now_us), Printable(found.told_by()),
                  Printable(found.version()), Count(found.images(), "image"));
  text += found.decoded() == 0 ? ", none decoded" : fmt::format(", {} decoded", found.decoded());
  if (found.shards() > 0) text += fmt::format(", {} read", Count(found.shards(), "shard"));
  if (found.checksums() > 0) text += fmt::format(", {} compared", Count(found.checksums(), "checksum"));
  return text;
}

template <typename Findings>
void PrintFindings(Context& context, const Findings& findings, uint64_t total) {
  const int shown = std::min(findings.size(), kFindingsShown);
  for (int i = 0; i < shown; ++i)
    context.out() << fmt::format("  {}: {}\n", Printable(findings[i].place()),
                                 Printable(findings[i].reason()));
  if (total > static_cast<uint64_t>(shown))
    context.out() << fmt::format("  and {} more\n", total - static_cast<uint64_t>(shown));
}

void PrintClasses(Context& context, Sheet& sheet, const v1::DatasetPart& part) {
  if (part.classes().empty()) return;
  sheet.Heading(part.name().empty() ? "classes" : fmt::format("classes of {}", Printable(part.name())));
  Table table({{"LABEL", true}, {.title = "CLASS", .shrink = true}, {"IMAGES", true}});
  const int shown = std::min(part.classes_size(), kClassesShown);
  for (int i = 0; i < shown; ++i)
    table.Add(
        {std::to_string(i), Printable(part.classes(i).name()), std::to_string(part.classes(i).images())});
  table.Print(context.out(), context.terminal(), 2);
  const auto all = static_cast<int>(part.class_count());
  if (all > shown) context.out() << fmt::format("  and {} more (-o json has them)\n", all - shown);
}

void PrintSet(Context& context, const v1::GetDatasetResponse& answer) {
  const auto& set = answer.dataset();
  const auto& facts = answer.facts();
  const int64_t now_us = NowMicros();
  context.out() << Printable(set.name()) << '\n';
  Sheet sheet(context);
  sheet.Field("address", Printable(set.address()));
  sheet.Field("owner", Printable(set.owner()));
  sheet.Field("registered", WhenText(set.registered_us(), now_us));
  if (set.made_by() != 0) sheet.Field("made by", fmt::format("job {}, which has not ended", set.made_by()));
  if (set.has_progress()) sheet.Field("conversion", ProgressText(context, set.progress(), now_us));
  if (set.images() > 0)
    sheet.Field("images", fmt::format("{} in {}", set.images(), Count(set.classes(), "class")));
  for (const auto& part : facts.contents().parts()) {
    if (!part.name().empty())
      sheet.Field(Printable(part.name()),
                  fmt::format("{} in {}", part.images(), Count(part.class_count(), "class")));
  }
  if (facts.has_contents())
    sheet.Field("described", fmt::format("{}, by {}", WhenText(facts.contents().time_us(), now_us),
                                         Printable(facts.contents().told_by())));
  sheet.Field("verified", VerifiedText(facts, set.name(), now_us));
  if (facts.has_verification()) {
    const bool good = facts.verification().broken() == 0;
    sheet.Field("faults", good ? "none" : std::to_string(facts.verification().broken()),
                good ? Style::kGood : Style::kBad);
  }
  if (!facts.verification().findings().empty()) {
    sheet.Heading("faults");
    PrintFindings(context, facts.verification().findings(), facts.verification().broken());
  }
  if (facts.contents().left_out() > 0) {
    sheet.Heading("left out when it was converted");
    PrintFindings(context, facts.contents().left_out_images(), facts.contents().left_out());
  }
  for (const auto& part : facts.contents().parts()) PrintClasses(context, sheet, part);
}

int Show(Context& context, const std::string& name, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::GetDatasetRequest request;
  request.set_name(name);
  const auto answer = (*client)->GetDataset(request);
  if (!answer) return context.Fail(answer.error());
  if (IsDocument(format)) {
    PrintDocument(context.out(), ToJson(*answer), format);
  } else {
    PrintSet(context, *answer);
  }
  return 0;
}

}  // namespace

void AddShowDataset(Command dataset, Context& context) {
  auto name = std::make_shared<std::string>();
  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command command =
      dataset.AddSubcommand("show", "What imgd knows of a data set: classes, verification, conversion");
  command.AddOption("NAME", *name, "As it was registered").Required().ValueName("");
  AddOutputOption(command, *format, kPlainFormats);
  command.Footer(
      "It was told by the conversion that made the set, by register, or by verify dataset:NAME.\n\n"
      "Examples:\n"
      "  imgcli dataset show imagenet\n"
      "  imgcli dataset show imagenet -o json | jq .facts.verification");
  command.Runs([&context, name, format] { return Show(context, *name, *format); });
}

}  // namespace imgd::cli
