#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "agent/doctor/facts.h"
#include "agent/gpu.h"
#include "common/files.h"

namespace imgd::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNvidia = "0x10de";

/// The file's first line; empty where it can't be read.
std::string FirstLine(const fs::path& path) {
  const auto text = ReadFile(path, 4096);
  return text ? text->substr(0, text->find('\n')) : "";
}

/// Of display controllers (class 03), among which compute cards without an output are.
int CountPciGpus(const fs::path& root) {
  int count = 0;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    const bool is_display = FirstLine(device.path() / "class").starts_with("0x03");
    if (is_display && FirstLine(device.path() / "vendor") == kNvidia) ++count;
  }
  return count;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ...": the first word that is a
/// version.
std::string DriverVersion(const fs::path& root) {
  const std::string line = FirstLine(root / "proc/driver/nvidia/version");
  for (size_t at = 0; at < line.size();) {
    const auto end = std::min(line.find_first_of(" \t", at), line.size());
    const auto word = line.substr(at, end - at);
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
    at = end + 1;
  }
  return "";
}

std::vector<std::string> DevicesThatAreClosed(const fs::path& root) {
  std::vector<std::string> closed;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root / "dev", error)) {
    const std::string name = device.path().filename();
    if (!name.starts_with("nvidia") || !device.is_character_file(error)) continue;
    if (::access(device.path().c_str(), R_OK | W_OK) != 0 && (errno == EACCES || errno == EPERM)) {
      closed.push_back(device.path());
    }
  }
  return closed;
}

bool HasEntries(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !fs::is_empty(folder, error);
}

}  // namespace

void GatherGpus(const Config& config, NodeFacts& facts, const fs::path& root) {
  std::error_code error;
  facts.pci_gpus = CountPciGpus(root);
  facts.driver = DriverVersion(root);
  facts.nouveau = fs::exists(root / "sys/module/nouveau", error);
  facts.has_uvm = fs::exists(root / "dev/nvidia-uvm", error);
  facts.closed = DevicesThatAreClosed(root);
  facts.has_nvswitch = HasEntries(root / "proc/driver/nvidia-nvswitch/devices");
  facts.fabric_manager = fs::exists(root / "run/nvidia-fabricmanager/nv-fabricmanager.pid", error) ||
                         fs::exists(root / "var/run/nvidia-fabricmanager/nv-fabricmanager.pid", error);
  if (!facts.wants_gpus) return;
  const auto nvml = Nvml::Load(config.nvml.empty() ? "libnvidia-ml.so.1" : config.nvml);
  if (!nvml) {
    facts.nvml_error = nvml.error().ToString();
    return;
  }
  const auto readings = (*nvml)->Read();
  for (size_t i = 0; i < readings.size(); ++i) {
    const auto& device = (*nvml)->devices()[i];
    facts.gpus.push_back({fmt::format("GPU {}, {}", device.index(), device.model()), readings[i].WhyIll()});
  }
  // Where there is no sysfs, as in some containers.
  facts.pci_gpus = std::max(facts.pci_gpus, static_cast<int>(facts.gpus.size()));
}

}  // namespace imgd::doctor
