#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/format.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int64_t kMessageShown = 15'000'000;  ///< for how long, in microseconds
constexpr int kLeastJobLines = 6;              ///< with their head
constexpr int kRoomy = 30;                     ///< lines from which parts have a blank line between

/// `right` at the right end of the line.
FrameLine WithEnd(FrameLine line, const std::string& right, const Look& look) {
  const int gap = look.width - 1 - WidthOf(line) - DisplayWidth(right);
  if (gap < 1) return Fitted(line, look.width, look.utf8);
  line.emplace_back(std::string(static_cast<size_t>(gap), ' '));
  line.emplace_back(right, Style::kDim);
  return line;
}

FrameLine SummaryLine(const TopData& data, const TopTotals& totals) {
  FrameLine line = {Cell("imgd", Style::kBold),
                    Cell(" " + data.server + "   "),
                    Cell(fmt::format("{}", totals.running), Style::kBold),
                    Cell(" running, "),
                    Cell(fmt::format("{}{}", totals.queued, data.more_jobs ? "+" : ""), Style::kBold),
                    Cell(" queued")};
  if (totals.paused > 0) line.emplace_back(fmt::format(", {} paused", totals.paused));
  line.emplace_back("   ");
  line.emplace_back(HumanRate(totals.images_per_second), Style::kBold);
  line.emplace_back(" images/s");
  return line;
}

FrameLine DevicesLine(const TopTotals& totals) {
  const bool all = totals.nodes == totals.nodes_ready;
  return {
      Cell(fmt::format("{} of {}", totals.nodes_ready, Count(static_cast<uint64_t>(totals.nodes), "node")),
           all ? Style::kPlain : Style::kWarn),
      Cell(" ready   "),
      Cell(fmt::format("{} of {}", totals.devices_allocated,
                       Count(static_cast<uint64_t>(totals.devices), "device"))),
      Cell(fmt::format(" allocated, {} free", totals.devices_free))};
}

std::string AwayText(const TopData& data) {
  return fmt::format("imgd has not answered since {}: {}; this is what it said last",
                     LocalClock(data.away_since_us), data.outage);
}

FrameLine Title(std::string_view text) { return {Cell(std::string(text), Style::kBold)}; }

Frame HelpFrame() {
  Frame frame = {Title("Keys")};
  const auto row = [&](std::string_view keys, std::string_view what) {
    frame.push_back({Cell(fmt::format("  {:<25}", keys), Style::kBold), Cell(std::string(what))});
  };
  row("arrows, j k, PgUp PgDn", "move in the jobs; in the log of an open job");
  row("Enter, or a number", "open a job: curves, stages of a step, ranks, log");
  row("Tab", "the arrows move in the nodes, or in the jobs again");
  row("/", "show only what has a text: jobs by number, name,");
  row("", "state, owner or reason; lines of an open job's log");
  row("c", "cancel the job, after a question");
  row("q, Esc", "back; from the cluster: leave");
  row("Ctrl-C", "leave");
  frame.push_back({});
  frame.push_back(Title("What is shown"));
  const auto note = [&](std::string_view text) { frame.push_back({Cell(fmt::format("  {}", text))}); };
  note("BUSY    share of the time that the GPU computed; red where a job holds one");
  note("        that does nothing");
  note("DONE    share of the job's steps; IMAGES/S of all of its ranks together");
  note("LOSS    of training, now and as a line over all of its steps");
  note("TOP-1   of the last validation");
  note("Jobs that do not run say why instead: imgcli explain JOB says more.");
  frame.push_back({});
  frame.push_back({Cell("any key goes back", Style::kDim)});
  return frame;
}

Frame TooSmall(const Look& look) {
  Frame frame = {{Cell(fmt::format("imgcli top needs {}x{};", kTopColumns, kTopLines))},
                 {Cell(fmt::format("this terminal has {}x{}.", look.width, look.height))},
                 {Cell("q leaves; imgcli top --once")},
                 {Cell("prints the cluster.")}};
  frame.resize(static_cast<size_t>(std::clamp(look.height, 0, 4)));
  return frame;
}

Frame ClusterFrame(const TopData& data, const TopState& state, int64_t now_us, const Look& look) {
  Frame frame = TopHeader(data, now_us, look);
  const bool roomy = look.height >= kRoomy;
  if (roomy) frame.emplace_back();
  const int room = look.height - static_cast<int>(frame.size()) - (roomy ? 2 : 1);
  const int jobs = static_cast<int>(ShownJobs(state, data).size()) + 1;
  // The nodes get what the jobs leave, and at least half of the room; with the arrows in them nearly all.
  const int least =
      state.part == TopState::Part::kNodes ? kLeastJobLines : std::min(std::max(jobs, 2), room / 2);
  Frame nodes;
  if (data.nodes.empty()) {
    nodes.push_back({Cell(
        "  no node has joined yet; start imgagent on a machine with GPUs (or --cpu-slots N)", Style::kDim)});
  } else {
    nodes = TopNodes(data, state.node_row, {.width = look.width, .height = room - least, .utf8 = look.utf8});
  }
  frame.insert(frame.end(), nodes.begin(), nodes.end());
  if (roomy) frame.emplace_back();
  const int left = look.height - static_cast<int>(frame.size()) - 1;
  const Frame table = TopJobs(data, state, {.width = look.width, .height = left, .utf8 = look.utf8});
  frame.insert(frame.end(), table.begin(), table.end());
  return frame;
}

std::string Prompted(const TopState& state) {
  switch (state.prompt) {
    case TopState::Prompt::kFilter:
      return fmt::format("show what has: {}_   Enter keeps it, Esc shows all", state.typed);
    case TopState::Prompt::kNumber:
      return fmt::format("open job: {}_   Enter opens it", state.typed);
    case TopState::Prompt::kCancel:
      return fmt::format("cancel {}?  y: at once   s: save a checkpoint first   other keys: no",
                         state.asked_title);
    case TopState::Prompt::kNone:
      break;
  }
  return "";
}

}  // namespace

Frame TopTrouble(const TopData& data) {
  Frame frame;
  if (!data.outage.empty()) frame.push_back({Cell(AwayText(data), Style::kBad)});
  if (!data.warning.empty()) frame.push_back({Cell("warning: " + data.warning, Style::kWarn)});
  return frame;
}

Frame TopHeader(const TopData& data, int64_t now_us, const Look& look) {
  const auto totals = TotalsOf(data);
  Frame frame = {WithEnd(SummaryLine(data, totals), LocalClock(now_us), look), DevicesLine(totals)};
  const Frame trouble = TopTrouble(data);
  frame.insert(frame.end(), trouble.begin(), trouble.end());
  for (auto& line : frame) line = Fitted(line, look.width, look.utf8);
  return frame;
}

FrameLine TopFooter(const TopData& data, const TopState& state, int64_t now_us) {
  if (state.prompt != TopState::Prompt::kNone) return {Cell(Prompted(state), Style::kBold)};
  if (!data.message.empty() && now_us - data.message_us < kMessageShown)
    return {Cell(data.message, data.message_style)};
  const bool cluster = state.view == TopState::View::kCluster;
  std::string keys = cluster ? "arrows move  Enter opens  / filters  c cancels  Tab nodes  ? help  q quits"
                             : "arrows scroll the log  / filters it  c cancels  ? help  q back";
  if (cluster && state.part == TopState::Part::kNodes)
    keys = "arrows move in the nodes  Tab jobs  ? help  q quits";
  const std::string& filter = cluster ? state.filter : state.log_filter;
  if (!filter.empty())
    return {Cell(fmt::format("only '{}'; Esc shows all   ", filter), Style::kWarn), Cell(keys, Style::kDim)};
  return {Cell(keys, Style::kDim)};
}

Frame TopFrame(const TopData& data, const TopState& state, int64_t now_us, const Look& look) {
  if (look.width < kTopColumns || look.height < kTopLines) return TooSmall(look);
  Frame frame;
  if (state.help) {
    frame = HelpFrame();
  } else if (state.view == TopState::View::kJob) {
    frame =
        TopJobView(data, state, now_us, {.width = look.width, .height = look.height - 1, .utf8 = look.utf8});
  } else {
    frame = ClusterFrame(data, state, now_us, look);
  }
  frame.resize(static_cast<size_t>(look.height));
  if (!state.help) frame.back() = TopFooter(data, state, now_us);
  for (auto& line : frame) line = Fitted(line, look.width, look.utf8);
  return frame;
}

Frame TopSnapshot(const TopData& data, int64_t now_us, const Look& look) {
  const Look all{.width = look.width, .height = 0, .utf8 = look.utf8};
  Frame frame = TopHeader(data, now_us, all);
  frame.push_back({});
  if (!data.nodes.empty()) {
    const Frame nodes = TopNodes(data, 0, all);
    frame.insert(frame.end(), nodes.begin(), nodes.end());
    frame.push_back({});
  }
  const Frame jobs = TopJobs(data, {}, all);
  frame.insert(frame.end(), jobs.begin(), jobs.end());
  return frame;
}

}  // namespace imgd::cli
