#include "trainer/dist/fabric.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace imgd::trainer {
namespace {

namespace fs = std::filesystem;

/// Where Amazon's installers put libnccl-net.so, below the root.
constexpr std::array<std::string_view, 4> kPluginFolders = {
    "opt/amazon/ofi-nccl/lib", "opt/amazon/ofi-nccl/lib64", "opt/aws-ofi-nccl/lib", "opt/amazon/efa/lib64"};
constexpr std::string_view kPlugin = "libnccl-net.so";

/// An EFA device's driver, as sysfs tells it.
bool IsEfa(const fs::path& device) {
  std::error_code error;
  return fs::read_symlink(device / "device" / "driver", error).filename() == "efa";
}

std::string FindPlugin(const fs::path& root, std::string_view library_path) {
  std::error_code error;
  const auto is_there = [&error](const fs::path& folder) { return fs::exists(folder / kPlugin, error); };
  while (!library_path.empty()) {
    const size_t end = std::min(library_path.find(':'), library_path.size());
    const fs::path folder(library_path.substr(0, end));
    if (!folder.empty() && is_there(folder)) return folder / kPlugin;
    library_path.remove_prefix(std::min(end + 1, library_path.size()));
  }
  for (const auto folder : kPluginFolders) {
    if (is_there(root / folder)) return root / folder / kPlugin;
  }
  return "";
}

/// What follows `sign` in the line, up to its end or `stop`; nothing where it has no such sign.
std::optional<std::string> After(std::string_view line, std::string_view sign, char stop = '\n') {
  const size_t at = line.find(sign);
  if (at == line.npos) return std::nullopt;
  line.remove_prefix(at + sign.size());
  line = line.substr(0, std::min(line.find(stop), line.size()));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  return std::string(line);
}

}  // namespace

std::string Fabric::ToString() const {
  if (devices.empty()) return "no RDMA devices";
  return fmt::format("{} RDMA device{} ({}){}{}", devices.size(), devices.size() == 1 ? "" : "s",
                     fmt::join(devices, ", "), efa ? ", EFA" : "",
                     plugin.empty() ? "" : fmt::format(", plugin {}", plugin));
}

Fabric FindFabric(const fs::path& root, std::string_view library_path) {
  Fabric fabric;
  std::error_code error;
  for (fs::directory_iterator it(root / "sys/class/infiniband", error), end; !error && it != end;
       it.increment(error)) {
    fabric.devices.push_back(it->path().filename());
    fabric.efa = fabric.efa || IsEfa(it->path());
  }
  std::sort(fabric.devices.begin(), fabric.devices.end());
  fabric.plugin = FindPlugin(root, library_path);
  return fabric;
}

std::vector<std::string> NcclNetworks(std::string_view log) {
  std::vector<std::string> networks;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (line.find("NCCL INFO") == line.npos) continue;
    auto network = After(line, "Using network ");
    if (!network) network = After(line, " via NET/", '/');
    if (!network || network->empty()) continue;
    if (std::find(networks.begin(), networks.end(), *network) == networks.end()) networks.push_back(*network);
  }
  return networks;
}

Status CheckFabric(const Fabric& fabric, const std::vector<std::string>& networks) {
  if (!fabric.fast() || std::find(networks.begin(), networks.end(), "Socket") == networks.end()) return {};
  return Fail(ErrorCode::kFailedPrecondition,
              "NCCL uses TCP sockets between nodes although there is a fast fabric: {}; {}, or set "
              "dist.allow_tcp: true",
              fabric.ToString(),
              fabric.efa && fabric.plugin.empty()
                  ? "EFA needs aws-ofi-nccl's libnccl-net.so in the library path"
                  : "look at dist.nccl and at NCCL's own log");
}

}  // namespace imgd::trainer
