#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace imgd {

/// What the machine does, whoever makes it do it. What could not be read is empty.
struct NodeFigures {
  std::optional<double> cpu_busy_seconds;  ///< of all processors, since the machine was started
  std::optional<double> cpu_idle_seconds;  ///< the same, waiting for disks included
  std::optional<double> memory_bytes;
  std::optional<double> memory_available_bytes;  ///< that programs can have without swapping
  std::optional<double> disk_bytes;              ///< of the disk that the agent's state folder is on
  std::optional<double> disk_free_bytes;
  std::optional<double> received_bytes;  ///< by all network interfaces but the loopback
  std::optional<double> sent_bytes;
};

/// Reads them: /proc, and the disk of `state_dir`. Takes well below a millisecond.
NodeFigures ReadNodeFigures(const std::filesystem::path& state_dir);

/// The same from texts of /proc/stat, /proc/meminfo and /proc/net/dev (proc(5)).
void TakeCpu(const std::string& stat, double ticks_per_second, NodeFigures& node);
void TakeMemory(const std::string& meminfo, NodeFigures& node);
void TakeNetwork(const std::string& net_dev, NodeFigures& node);

}  // namespace imgd
