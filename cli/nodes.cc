#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "cli/commands.h"
#include "cli/device_now.h"
#include "cli/format.h"
#include "cli/node_text.h"
#include "cli/serialize.h"
#include "cli/words.h"
#include "imgd/v1/node.pb.h"

namespace imgd::cli {
namespace {

/// "ready"; jobs' states are in capitals, nodes' are not.
std::string ReachName(v1::NodeState state) {
  const std::string name = v1::NodeState_Name(state);
  constexpr std::string_view kPrefix = "NODE_STATE_";
  std::string word = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

/// What a node's devices add up to.
struct DeviceSummary {
  int free = 0;
  std::set<std::string> models;
  std::set<uint64_t> jobs;
  KnownSum busy;
  KnownSum watts;
  double hottest = NAN;  ///< degrees Celsius
  KnownSum memory_used_bytes;
  uint64_t memory_bytes = 0;  ///< of those whose memory in use is known
};

DeviceSummary Summarize(const v1::Node& node) {
  DeviceSummary sum;
  for (const auto& device : node.devices()) {
    sum.models.insert(device.model());
    if (device.job_id() != 0) {
      sum.jobs.insert(device.job_id());
    } else if (device.held_text().empty()) {
      ++sum.free;
    }
    const DeviceNow now = NowOf(node, device);
    sum.busy.Add(now.busy_ratio);
    sum.watts.Add(now.watts);
    sum.hottest = std::fmax(sum.hottest, now.celsius);
    sum.memory_used_bytes.Add(now.memory_used_bytes);
    if (std::isfinite(now.memory_used_bytes)) sum.memory_bytes += device.memory_bytes();
  }
  return sum;
}

/// "zone=us-east-1a,capacity=spot", by name.
std::string LabelsOf(const v1::Node& node) {
  const std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

/// "640 W"; empty where nobody knows.
std::string FigureText(double value, std::string_view unit) {
  return std::isfinite(value) ? fmt::format("{:.0f} {}", value, unit) : "";
}

std::vector<Cell> Row(const v1::Node& node, bool wide, int64_t now_us) {
  const auto sum = Summarize(node);
  std::vector<Cell> row = {
      Cell(node.name()),
      Cell(NodeStateText(node), NodeStyle(node)),
      Cell(std::to_string(node.devices_size())),
      Cell(std::to_string(IsUsable(node) ? sum.free : 0)),
      Cell(fmt::format("{}", fmt::join(sum.models, ", "))),
      Cell(fmt::format("{}", fmt::join(sum.jobs, ","))),
      Cell(HumanPercent(sum.busy.Mean())),
      Cell(node.last_heartbeat_us() == 0 ? "" : HumanAge(now_us, node.last_heartbeat_us()) + " ago"),
      Cell(node.address()),
      Cell(node.agent_version()),
  };
  if (wide) {
    row.insert(
        row.end(),
        {Cell(sum.memory_used_bytes.count > 0
                  ? fmt::format("{} of {}", HumanBytes(static_cast<uint64_t>(sum.memory_used_bytes.sum)),
                                HumanBytes(sum.memory_bytes))
                  : ""),
         Cell(FigureText(sum.watts.Sum(), "W")), Cell(FigureText(sum.hottest, "C")),
         Cell(HumanAge(now_us, node.joined_us())), Cell(LabelsOf(node)),
         Cell(node.reason_text(), Style::kDim)});
  }
  return row;
}

void PrintTable(Context& context, const v1::ListNodesResponse& nodes, bool wide) {
  std::vector<Column> columns = {{.title = "NAME", .shrink = true},
                                 {"STATE"},
                                 {"DEVICES", true},
                                 {"FREE", true},
                                 {.title = "MODEL", .shrink = true},
                                 {.title = "JOBS", .shrink = true},
                                 {"BUSY", true},
                                 {"HEARTBEAT", true},
                                 {"ADDRESS"},
                                 {"VERSION"}};
  if (wide) {
    columns.insert(columns.end(), {{"MEMORY", true},
                                   {"POWER", true},
                                   {"HOTTEST", true},
                                   {"JOINED", true},
                                   {.title = "LABELS", .shrink = true},
                                   {.title = "REASON", .shrink = true}});
  }
  Table table(std::move(columns));
  const int64_t now_us = NowMicros();
  for (const auto& node : nodes.nodes()) table.Add(Row(node, wide, now_us));
  table.Print(context.out(), context.terminal());
}

int RunNodes(Context& context, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto nodes = (*client)->ListNodes();
  if (!nodes) return context.Fail(nodes.error());
  context.Warn(nodes->warning());
  if (format == OutputFormat::kJson || format == OutputFormat::kYaml) {
    PrintDocument(context.out(), ToJsonArray(nodes->nodes()), format);
  } else if (nodes->nodes().empty()) {
    context.Say("no node has joined yet; start imgagent on a machine with GPUs (or --cpu-slots N)");
  } else {
    PrintTable(context, *nodes, format == OutputFormat::kWide);
  }
  return 0;
}

}  // namespace

bool IsConnected(const v1::Node& node) {
  return node.state() == v1::NODE_STATE_READY && !node.disconnected();
}

bool IsUsable(const v1::Node& node) {
  return IsConnected(node) && !node.has_set_aside() && node.problems().empty() && !node.has_notice();
}

std::string NodeStateText(const v1::Node& node) {
  std::vector<std::string> words;
  const bool ready = node.state() == v1::NODE_STATE_READY;
  if (node.has_notice()) {
    words.emplace_back(ready ? "leaving" : "taken back");
  } else if (!ready) {
    words.push_back(ReachName(node.state()));
  } else if (node.disconnected()) {
    words.emplace_back("disconnected");
  }
  const auto& aside = node.set_aside();
  if (node.has_set_aside())
    words.emplace_back(aside.by_imgd()  ? "set aside"
                       : !aside.drain() ? "cordoned"
                       : aside.empty()  ? "drained"
                                        : "draining");
  if (!node.problems().empty()) words.emplace_back("sick");
  return words.empty() ? ReachName(node.state()) : fmt::format("{}", fmt::join(words, ", "));
}

Style NodeStyle(const v1::Node& node) {
  if (node.state() == v1::NODE_STATE_LOST) return Style::kBad;
  return IsUsable(node) ? Style::kGood : Style::kWarn;
}

void AddNodesCommand(Command app, Context& context) {
  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command command = app.AddSubcommand("nodes", "List the machines that have joined");
  AddOutputOption(command, *format);
  command.Footer(
      "BUSY is the mean share of time that the GPUs computed; JOBS are those that hold devices there. -o "
      "wide\n"
      "adds memory, power, temperature, and why a node takes nothing new. Figures are of the GPUs that could "
      "be\n"
      "read; - is what nobody knows, as of a node whose agent is away. imgcli node sets one aside.\n"
      "\n"
      "Examples:\n"
      "  imgcli nodes\n"
      "  imgcli nodes -o json | jq -r '.[] | select(.state != \"NODE_STATE_READY\") | .name'");
  command.Runs([&context, format] { return RunNodes(context, *format); });
}

}  // namespace imgd::cli
