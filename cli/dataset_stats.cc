#include <nlohmann/json.hpp>

#include "cli/dataset_look.h"
#include "cli/format.h"
#include "cli/rate_line.h"
#include "cli/serialize.h"
#include "trainer/data/dataset.h"
#include "trainer/data/set_stats.h"
#include "trainer/data/shard_list.h"

namespace imgd::cli {
namespace {

constexpr int kHistogramWidth = 30;

nlohmann::ordered_json StatsJson(const data::Spread& spread) {
  return {{"count", spread.count}, {"min", spread.min},       {"p5", spread.p5},
          {"p25", spread.p25},     {"median", spread.median}, {"p75", spread.p75},
          {"p95", spread.p95},     {"max", spread.max},       {"mean", spread.mean}};
}

nlohmann::ordered_json StatsJson(const std::string& where, const data::SetStats& stats) {
  nlohmann::ordered_json document = {{"set", data::Shown(where)},
                                     {"images", stats.images},
                                     {"looked_at", stats.looked_at},
                                     {"classes", stats.classes},
                                     {"images_per_class", StatsJson(stats.per_class)},
                                     {"fewest", stats.fewest},
                                     {"most", stats.most},
                                     {"bytes", stats.bytes},
                                     {"file_bytes", StatsJson(stats.file_bytes)},
                                     {"width", StatsJson(stats.width)},
                                     {"height", StatsJson(stats.height)},
                                     {"quality", StatsJson(stats.quality)},
                                     {"formats", stats.formats},
                                     {"colours", stats.colours},
                                     {"subsampling", stats.subsampling},
                                     {"progressive", stats.progressive},
                                     {"arithmetic", stats.arithmetic},
                                     {"with_restarts", stats.with_restarts},
                                     {"unreadable", stats.unreadable}};
  return document;
}

/// "YCbCr 1981 (99.1 %), grey 19 (0.9 %)": the most frequent first.
std::string Shares(const std::map<std::string, uint64_t>& counts) {
  std::vector<std::pair<std::string, uint64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), &std::pair<std::string, uint64_t>::second);
  uint64_t total = 0;
  for (const auto& [name, count] : sorted) total += count;
  std::string text;
  for (const auto& [name, count] : sorted) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
    if (count != total)
      text += fmt::format(" ({})", HumanPercent(static_cast<double>(count) / static_cast<double>(total)));
  }
  return text;
}

void PrintSpreads(Context& context, const data::SetStats& stats) {
  Table table({{""},
               {"MIN", true},
               {"5 %", true},
               {"25 %", true},
               {"MEDIAN", true},
               {"75 %", true},
               {"95 %", true},
               {"MAX", true},
               {"MEAN", true}});
  const auto number = [](double value) { return fmt::format("{:.0f}", value); };
  const auto bytes = [](double value) { return HumanBytes(static_cast<uint64_t>(value)); };
  const auto add = [&](const char* title, const data::Spread& spread, const auto& text) {
    if (spread.count == 0) return;
    std::vector<Cell> row = {Cell(title)};
    for (const uint64_t value :
         {spread.min, spread.p5, spread.p25, spread.median, spread.p75, spread.p95, spread.max})
      row.emplace_back(text(static_cast<double>(value)));
    row.emplace_back(text(spread.mean));
    table.Add(std::move(row));
  };
  add("images of a class", stats.per_class, number);
  add("width, pixels", stats.width, number);
  add("height, pixels", stats.height, number);
  add("file", stats.file_bytes, bytes);
  add("JPEG quality", stats.quality, number);
  table.Print(context.out(), context.terminal(), 2);
}

void PrintBalance(Context& context, const data::SetStats& stats) {
  auto& out = context.out();
  if (stats.bins.size() < 2) return;
  out << fmt::format("\n  classes by their number of images; fewest: {}, most: {}\n", Printable(stats.fewest),
                     Printable(stats.most));
  uint64_t most = 1;
  for (const auto& bin : stats.bins) most = std::max(most, bin.classes);
  const size_t width = std::to_string(stats.per_class.max).size();
  for (const auto& bin : stats.bins) {
    const double ratio = static_cast<double>(bin.classes) / static_cast<double>(most);
    const std::string from = bin.from == bin.to ? "" : fmt::format("{} -", bin.from);
    out << fmt::format("  {:>{}} {:>{}}  {} {}\n", from, width + 2, bin.to, width,
                       Bar(ratio, kHistogramWidth, context.terminal().utf8), bin.classes);
  }
}

void PrintStats(Context& context, const std::string& where, const data::SetStats& stats) {
  auto& out = context.out();
  const bool all = stats.looked_at == stats.images;
  const double share =
      static_cast<double>(stats.images) / static_cast<double>(std::max<uint64_t>(stats.looked_at, 1));
  const auto total = static_cast<uint64_t>(static_cast<double>(stats.bytes) * share);
  out << fmt::format("{}: {} in {}, {}{}\n", Printable(data::Shown(where)), Count(stats.images, "image"),
                     Count(stats.classes, "class"), all ? "" : "about ", HumanBytes(total));
  if (!all)
    out << fmt::format("  looked at {} of them, spread evenly (--sample 0: at all)\n", stats.looked_at);
  PrintSpreads(context, stats);
  PrintBalance(context, stats);
  out << fmt::format("\n  format       {}\n", Shares(stats.formats));
  if (!stats.colours.empty()) out << fmt::format("  colours      {}\n", Shares(stats.colours));
  if (!stats.subsampling.empty()) out << fmt::format("  subsampling  {}\n", Shares(stats.subsampling));
  out << fmt::format("  progressive  {}\n", stats.progressive);
  out << fmt::format("  restarts     {}\n", stats.with_restarts);
  if (stats.arithmetic > 0) out << fmt::format("  arithmetic   {}\n", stats.arithmetic);
  if (stats.unreadable > 0)
    out << fmt::format("  unreadable   {} (imgcli dataset verify --decode names them)\n", stats.unreadable);
}

Result<data::SetStats> LookAt(Context& context, const std::string& where, const StatsArguments& arguments) {
  IMGD_ASSIGN(const auto set, data::OpenDataset(where));
  RateLine line(context, "looking at", RateLine::Unit::kImages);
  return data::LookAtDataset(*set, arguments.sample, JobsOf(arguments.jobs),
                             [&](uint64_t done, uint64_t total) {
                               line.Show(done, total);
                               return !context.interrupt().Triggered();
                             });
}

}  // namespace

int Stats(Context& context, const StatsArguments& arguments) {
  context.FollowUntilInterrupted();
  auto documents = nlohmann::ordered_json::array();
  for (const auto& where : SetsIn(arguments.where)) {
    const auto stats = LookAt(context, where, arguments);
    if (!stats) return context.Fail({stats.error()});
    if (arguments.format == OutputFormat::kTable) {
      PrintStats(context, where, *stats);
    } else {
      documents.push_back(StatsJson(where, *stats));
    }
  }
  if (arguments.format != OutputFormat::kTable) PrintDocument(context.out(), documents, arguments.format);
  return 0;
}

}  // namespace imgd::cli
