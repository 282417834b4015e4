#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/device_now.h"
#include "cli/format.h"
#include "cli/node_text.h"
#include "cli/top_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int kNodeName = 14;
constexpr int kDeviceBar = 10;
constexpr size_t kAllBars = 64;  ///< so many devices have lines of their own where there is room without end

/// A share as one of eight heights.
std::string Column8(double ratio, bool utf8) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int level = std::clamp(static_cast<int>(ratio * 8), 0, 7);
  if (utf8) return kBlocks[level];
  return std::string(1, "_.:-=+*#"[level]);
}

double MemoryRatio(const v1::Device& device, const DeviceNow& now) {
  return now.memory_used_bytes / static_cast<double>(device.memory_bytes());
}

/// A whole number in a place of its own; "-" where nobody knows it.
std::string Figure(double value, int width) {
  return std::isfinite(value) ? fmt::format("{:{}.0f}", value, width) : fmt::format("{:>{}}", "-", width);
}

std::string NameOfJob(const TopData& data, uint64_t id) {
  for (const auto& job : data.jobs) {
    if (job.id() == id) return fmt::format("{} {}", id, job.name());
  }
  return fmt::format("{}", id);
}

std::string HolderText(const TopData& data, const v1::Device& device) {
  if (device.job_id() != 0) return NameOfJob(data, device.job_id());
  return device.held_text().empty() ? "free" : device.held_text();
}

/// An allocated GPU that computes nothing is what somebody looks for here.
Style BusyStyle(const v1::Device& device, double busy) {
  if (!std::isfinite(busy)) return Style::kDim;
  if (device.job_id() != 0 && busy < 0.01) return Style::kBad;
  return device.job_id() == 0 ? Style::kDim : busy < 0.5 ? Style::kWarn : Style::kGood;
}

std::string MemoryText(const v1::Device& device, const DeviceNow& now) {
  constexpr double kGiB = 1 << 30;
  return fmt::format("{}/{:.0f} GiB", Figure(now.memory_used_bytes / kGiB, 0),
                     static_cast<double>(device.memory_bytes()) / kGiB);
}

FrameLine DeviceLine(const TopData& data, const v1::Node& node, const v1::Device& device, bool first,
                     const Look& look) {
  const bool usable = IsUsable(node);
  FrameLine line = {Cell("  "), Cell(Padded(first ? node.name() : "", kNodeName, look.utf8), NodeStyle(node)),
                    Cell(fmt::format(" {:>3} ", device.index()))};
  if (const DeviceNow now = NowOf(node, device); now.IsKnown()) {
    line.emplace_back(Bar(now.busy_ratio, kDeviceBar, look.utf8), BusyStyle(device, now.busy_ratio));
    line.emplace_back(fmt::format(" {} %  ", Figure(now.busy_ratio * 100, 3)));
    line.emplace_back(Bar(MemoryRatio(device, now), kDeviceBar, look.utf8), Style::kBusy);
    line.emplace_back(Padded(" " + MemoryText(device, now), 12, look.utf8));
    if (look.width >= 100)
      line.emplace_back(fmt::format(" {} C {} W", Figure(now.celsius, 3), Figure(now.watts, 4)));
  } else {
    const std::string what = device.memory_bytes() == 0 ? device.model() : "no reading";
    line.emplace_back(Padded(what, 40 + (look.width >= 100 ? 13 : 0), look.utf8), Style::kDim);
  }
  const bool free = device.job_id() == 0 && device.held_text().empty();
  line.emplace_back("  " + (free && !usable ? NodeStateText(node) : HolderText(data, device)),
                    free ? Style::kDim : Style::kPlain);
  if (first && !usable && !free) line.emplace_back(fmt::format(" ({})", NodeStateText(node)), Style::kWarn);
  return Fitted(line, look.width, look.utf8);
}

FrameLine BareNodeLine(const v1::Node& node, const Look& look) {
  return Fitted({Cell("  "), Cell(Padded(node.name(), kNodeName, look.utf8), NodeStyle(node)),
                 Cell(fmt::format("  {}, no devices", NodeStateText(node)))},
                look.width, look.utf8);
}

/// All devices of a node in one line: a column each for busy, and for memory.
FrameLine NodeLine(const TopData& data, const v1::Node& node, int most_devices, const Look& look) {
  std::string busy, memory;
  std::vector<uint64_t> jobs;
  KnownSum mean;
  for (const auto& device : node.devices()) {
    const DeviceNow now = NowOf(node, device);
    const double memory_ratio = MemoryRatio(device, now);
    const bool free = device.job_id() == 0 && device.held_text().empty();
    const bool known = std::isfinite(now.busy_ratio);
    busy += known                       ? Column8(now.busy_ratio, look.utf8)
            : free                      ? "."
            : device.memory_bytes() > 0 ? "?"
            : look.utf8                 ? "■"
                                        : "#";
    memory += std::isfinite(memory_ratio) ? Column8(memory_ratio, look.utf8) : " ";
    mean.Add(now.busy_ratio);
    if (device.job_id() != 0 && std::find(jobs.begin(), jobs.end(), device.job_id()) == jobs.end())
      jobs.push_back(device.job_id());
  }
  const int width = std::clamp(most_devices, 4, look.width / 4);
  FrameLine line = {Cell("  "), Cell(Padded(node.name(), kNodeName, look.utf8), NodeStyle(node)),
                    Cell("  " + Padded(busy, width, look.utf8), Style::kGood),
                    Cell(mean.count > 0 ? fmt::format(" {:3.0f} %  ", mean.Mean() * 100) : "        "),
                    Cell(Padded(memory, width, look.utf8), Style::kBusy)};
  if (!IsUsable(node)) line.emplace_back(fmt::format("  {}", NodeStateText(node)), Style::kWarn);
  std::vector<std::string> names;
  for (const uint64_t id : jobs) names.push_back(NameOfJob(data, id));
  line.emplace_back(fmt::format("  {}", fmt::join(names, ", ")));
  return Fitted(line, look.width, look.utf8);
}

FrameLine NodesHead(bool bars, int most_devices, const Look& look) {
  const std::string name = "  " + Padded("NODE", kNodeName, look.utf8);
  if (bars) {
    return {Cell(fmt::format("{} GPU {:<18}{:<22}{}  JOB", name, "BUSY", "MEMORY",
                             look.width >= 100 ? "  TEMP  POWER" : ""),
                 Style::kDim)};
  }
  const int width = std::clamp(most_devices, 4, look.width / 4);
  return {Cell(fmt::format("{}  {:<{}}{:<{}}  JOBS", name, "BUSY", width + 8, "MEMORY", width), Style::kDim)};
}

}  // namespace

Frame TopNodes(const TopData& data, int first_row, const Look& look) {
  size_t devices = 0;
  int most = 0;
  for (const auto& node : data.nodes) {
    devices += static_cast<size_t>(std::max(1, node.devices_size()));
    most = std::max(most, node.devices_size());
  }
  const bool bars = look.height == 0 ? devices <= kAllBars : static_cast<int>(devices) < look.height;
  Frame rows;
  for (const auto& node : data.nodes) {
    if (!bars) rows.push_back(NodeLine(data, node, most, look));
    if (bars && node.devices().empty()) rows.push_back(BareNodeLine(node, look));
    for (int i = 0; bars && i < node.devices_size(); ++i)
      rows.push_back(DeviceLine(data, node, node.devices(i), i == 0, look));
  }
  Frame frame = {NodesHead(bars, most, look)};
  const size_t room = look.height == 0 ? rows.size() : static_cast<size_t>(std::max(1, look.height - 1));
  if (rows.size() <= room) {
    frame.insert(frame.end(), rows.begin(), rows.end());
    return frame;
  }
  // The last line says what is not shown.
  const size_t shown = room - 1;
  const size_t from = std::min(static_cast<size_t>(std::max(0, first_row)), rows.size() - shown);
  frame.insert(frame.end(), rows.begin() + static_cast<ptrdiff_t>(from),
               rows.begin() + static_cast<ptrdiff_t>(from + shown));
  frame.push_back(
      {Cell(fmt::format("  {} to {} of {} nodes; Tab, then the arrows", from + 1, from + shown, rows.size()),
            Style::kDim)});
  return frame;
}

}  // namespace imgd::cli
