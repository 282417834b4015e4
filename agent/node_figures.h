#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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
  std::optional<double> received_bytes;  ///< by all network interfaces but the loopback: never goes backwards
  std::optional<double> sent_bytes;
};

/// Adds up what the interfaces count. What one that goes had counted (a container's, a VPN's) stays in the
/// sum, and what one had counted before it came does not enter it.
class NetworkMeter {
 public:
  /// `net_dev` is the text of /proc/net/dev (proc(5)), of now.
  void Take(const std::string& net_dev, NodeFigures& node);

 private:
  struct Traffic {
    uint64_t received = 0;
    uint64_t sent = 0;
  };
  std::optional<Traffic> sum_;             ///< nothing before the first text with an interface
  std::map<std::string, Traffic> latest_;  ///< of each that is there
};

/// Reads them: /proc, and the disk of `state_dir`. Takes well below a millisecond.
NodeFigures ReadNodeFigures(const std::filesystem::path& state_dir, NetworkMeter& network);

/// The same from texts of /proc/stat and /proc/meminfo (proc(5)).
void TakeCpu(const std::string& stat, double ticks_per_second, NodeFigures& node);
void TakeMemory(const std::string& meminfo, NodeFigures& node);

}  // namespace imgd
