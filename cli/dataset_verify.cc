#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/dataset_facts.h"
#include "cli/dataset_look.h"
#include "cli/format.h"
#include "cli/rate_line.h"
#include "cli/serialize.h"
#include "common/dataset_ref.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/verify.h"

namespace imgd::cli {
namespace {

constexpr size_t kShown = 20;   ///< findings, where not all are asked for
constexpr size_t kKept = 1000;  ///< for JSON

nlohmann::ordered_json ReportJson(const std::string& where, const data::VerifyReport& report) {
  nlohmann::ordered_json document = {{"set", data::Shown(where)},     {"good", report.broken == 0},
                                     {"images", report.images},       {"decoded", report.decoded},
                                     {"shards", report.shards},       {"shard_bytes", report.shard_bytes},
                                     {"checksums", report.checksums}, {"indexes", report.indexes},
                                     {"records", report.records},     {"broken", report.broken}};
  document["findings"] = nlohmann::ordered_json::array();
  for (const auto& finding : report.findings)
    document["findings"].push_back({{"place", finding.place}, {"reason", finding.reason}});
  document["doubtful"] = report.doubtful;
  document["warnings"] = nlohmann::ordered_json::array();
  for (const auto& warning : report.warnings)
    document["warnings"].push_back({{"place", warning.place}, {"reason", warning.reason}});
  document["notes"] = report.notes;
  document["classes"] = nlohmann::ordered_json::array();
  for (size_t c = 0; c < report.classes.size(); ++c)
    document["classes"].push_back({{"name", report.classes[c]}, {"images", report.class_images[c]}});
  return document;
}

/// "200 of each", "732 to 1300 of each".
std::string ClassSizes(const std::vector<uint64_t>& images) {
  const auto [least, most] = std::ranges::minmax_element(images);
  return *least == *most ? fmt::format("{} of each", *least) : fmt::format("{} to {} of each", *least, *most);
}

/// The first of `total`. Whole lines: a reason that is cut would be of no use.
void PrintFindings(Context& context, const std::vector<data::VerifyFinding>& findings, uint64_t total,
                   bool all, Style style) {
  const size_t shown = all ? findings.size() : std::min(findings.size(), kShown);
  for (size_t i = 0; i < shown; ++i) {
    context.out() << fmt::format("  {} {}\n", Printable(findings[i].place) + ":",
                                 Paint(Printable(findings[i].reason), style, context.terminal().color));
  }
  if (shown < total) context.out() << fmt::format("  and {} more, which --all shows\n", total - shown);
}

}  // namespace

void PrintReport(Context& context, const std::string& set, bool all, const data::VerifyReport& report) {
  auto& out = context.out();
  const std::string where = Printable(data::Shown(set));
  if (report.images > 0) {
    out << fmt::format("{}: {} in {}, {}\n", where, Count(report.images, "image"),
                       Count(report.classes.size(), "class"), ClassSizes(report.class_images));
  } else {
    out << fmt::format("{}:\n", where);
  }
  if (report.shards > 0) {
    out << fmt::format("  {}, {}", Count(report.shards, "shard"), HumanBytes(report.shard_bytes));
    if (report.checksums > 0) out << fmt::format(", {} compared", Count(report.checksums, "checksum"));
    if (report.indexes > 0)
      out << fmt::format(", {} compared",
                         report.indexes == 1 ? "1 index" : fmt::format("{} indexes", report.indexes));
    if (report.records > 0) out << fmt::format(", checksums of {} compared", Count(report.records, "record"));
    out << '\n';
  }
  if (report.decoded > 0) out << fmt::format("  {} decoded\n", Count(report.decoded, "image"));
  for (const auto& note : report.notes) out << fmt::format("  {}\n", Printable(note));
  if (report.doubtful > 0) {
    out << fmt::format("{} decoded with warnings, which is no fault:\n", Count(report.doubtful, "image"));
    PrintFindings(context, report.warnings, report.doubtful, all, Style::kWarn);
    if (report.broken > 0) out << "broken:\n";
  }
  PrintFindings(context, report.findings, report.broken, all, Style::kBad);
  const auto& terminal = context.terminal();
  if (report.broken == 0) {
    out << Paint("nothing is broken", Style::kGood, terminal.color);
    out << (report.decoded == 0 ? " (the images were not decoded, which --decode does)\n" : "\n");
  } else {
    out << Paint(fmt::format("{} found", Count(report.broken, "fault")), Style::kBad, terminal.color) << '\n';
  }
}

Result<data::VerifyReport> VerifyPart(Context& context, const std::string& where,
                                      const VerifyArguments& arguments, const data::VerifyProgress& told) {
  const data::VerifyOptions options{
      .decode = arguments.decode,
      .jobs = JobsOf(arguments.jobs),
      .classes = arguments.classes,
      .most_findings = arguments.all ? std::numeric_limits<size_t>::max() : kKept};
  std::unique_ptr<RateLine> line;
  auto drawn = data::VerifyPhase::kShards;
  return data::VerifyDataset(where, options, [&](data::VerifyPhase phase, uint64_t done, uint64_t total) {
    const bool shards = phase == data::VerifyPhase::kShards;
    if (line == nullptr || phase != drawn) {
      line.reset();
      line = std::make_unique<RateLine>(context, shards ? "checking" : "decoding",
                                        shards ? RateLine::Unit::kBytes : RateLine::Unit::kImages);
      drawn = phase;
    }
    line->Show(done, total);
    return !context.interrupt().Triggered() && (!told || told(phase, done, total));
  });
}

namespace {

/// A set that imgd has a name for.
struct NamedSet {
  std::string name;
  std::string address;
};

/// What imgd calls so.
Reply<NamedSet> FindNamed(Context& context, const DatasetRef& ref) {
  auto client = context.client();
  if (!client) return tl::unexpected(client.error());
  v1::GetDatasetRequest request;
  request.set_name(ref.name);
  const auto answer = (*client)->GetDataset(request);
  if (!answer) return tl::unexpected(answer.error());
  return NamedSet{ref.name, answer->dataset().address()};
}

/// What is broken may be why it can't be opened: then imgd hears of the faults alone.
void Tell(Context& context, const NamedSet& set, v1::DatasetVerification verification) {
  auto client = context.client();
  if (!client) return;
  v1::DatasetFacts facts;
  *facts.mutable_verification() = std::move(verification);
  if (auto contents = ContentsOf(PlacedPartsOf(set.address)))
    *facts.mutable_contents() = std::move(*contents);
  ReportFacts(context, **client, set.name, set.address, std::move(facts));
}

}  // namespace

int Verify(Context& context, const VerifyArguments& arguments) {
  context.FollowUntilInterrupted();
  std::string address = arguments.where;
  std::optional<NamedSet> named;
  if (const auto ref = ParseDatasetRef(arguments.where)) {
    auto found = FindNamed(context, *ref);
    if (!found) return context.Fail(found.error());
    while (found->address.ends_with('/')) found->address.pop_back();
    address = found->address + ref->below;
    if (ref->below.empty()) named = std::move(*found);  // of a part imgd keeps nothing
  }
  auto documents = nlohmann::ordered_json::array();
  v1::DatasetVerification verification;
  for (const auto& where : SetsIn(address)) {
    const auto report = VerifyPart(context, where, arguments);
    if (!report) return context.Fail({report.error()});
    if (arguments.format == OutputFormat::kTable) {
      PrintReport(context, where, arguments.all, *report);
    } else {
      documents.push_back(ReportJson(where, *report));
    }
    AddVerified(*report, verification);
  }
  if (arguments.format != OutputFormat::kTable) PrintDocument(context.out(), documents, arguments.format);
  const int code = verification.broken() == 0 ? 0 : kBrokenExit;
  if (named) Tell(context, *named, std::move(verification));
  return code;
}

}  // namespace imgd::cli
