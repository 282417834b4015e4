#include "agent/node_figures.h"

#include <unistd.h>

#include <sstream>
#include <string>
#include <utility>

#include "common/files.h"

namespace imgd {

void TakeCpu(const std::string& stat, double ticks_per_second, NodeFigures& node) {
  std::istringstream in(stat);
  std::string word;
  // user nice system idle iowait irq softirq steal; guests' time is in user's already.
  double ticks[8] = {};
  if (!(in >> word) || word != "cpu") return;
  for (double& value : ticks) {
    if (!(in >> value)) return;
  }
  const double idle = ticks[3] + ticks[4];
  double all = 0;
  for (const double value : ticks) all += value;
  node.cpu_busy_seconds = (all - idle) / ticks_per_second;
  node.cpu_idle_seconds = idle / ticks_per_second;
}

void TakeMemory(const std::string& meminfo, NodeFigures& node) {
  std::istringstream in(meminfo);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    double kib = 0;
    if (!(words >> key >> kib)) continue;
    if (key == "MemTotal:") node.memory_bytes = kib * 1024;
    if (key == "MemAvailable:") node.memory_available_bytes = kib * 1024;
  }
}

void NetworkMeter::Take(const std::string& net_dev, NodeFigures& node) {
  std::istringstream in(net_dev);
  std::map<std::string, Traffic> now;
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;  // the two lines of headings
    const std::string name = line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '));
    if (name == "lo") continue;
    std::istringstream words(line.substr(colon + 1));
    uint64_t values[9] = {};
    bool whole = true;
    for (uint64_t& value : values) whole = whole && words >> value;
    if (whole) now[name] = {values[0], values[8]};
  }
  if (now.empty()) return;
  if (!sum_) sum_.emplace();
  // One that counts less than it did has begun anew.
  const auto grown = [](uint64_t value, uint64_t before) { return value < before ? value : value - before; };
  for (const auto& [name, traffic] : now) {
    const auto known = latest_.find(name);
    if (known == latest_.end()) continue;
    sum_->received += grown(traffic.received, known->second.received);
    sum_->sent += grown(traffic.sent, known->second.sent);
  }
  latest_ = std::move(now);
  node.received_bytes = static_cast<double>(sum_->received);
  node.sent_bytes = static_cast<double>(sum_->sent);
}

NodeFigures ReadNodeFigures(const std::filesystem::path& state_dir, NetworkMeter& network) {
  NodeFigures node;
  if (const auto text = ReadFile("/proc/stat"))
    TakeCpu(*text, static_cast<double>(::sysconf(_SC_CLK_TCK)), node);
  if (const auto text = ReadFile("/proc/meminfo")) TakeMemory(*text, node);
  if (const auto text = ReadFile("/proc/net/dev")) network.Take(*text, node);
  std::error_code error;
  const auto space = std::filesystem::space(state_dir, error);
  if (!error) {
    node.disk_bytes = static_cast<double>(space.capacity);
    node.disk_free_bytes = static_cast<double>(space.available);
  }
  return node;
}

}  // namespace imgd
