#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/config.h"
#include "common/doctor/clock.h"
#include "common/doctor/reach.h"

namespace imgd::doctor {

struct GpuFacts {
  std::string name;  ///< "GPU 0, NVIDIA H100"
  std::string ill;   ///< what is broken; empty where nothing is
};

/// What the trainer is linked to, as `imgtrain --libraries` says it; "none" in one that was built for CPUs
/// alone.
struct TrainerLibraries {
  std::string torch;  ///< "2.13.0"
  std::string cuda;   ///< "13.0"
  std::string nccl;   ///< "2.29.7"
  std::string error;  ///< why the part for GPUs can't be loaded; empty: it can
};

/// What was found on a node. Whatever is empty could not be found out; the checks say so.
struct NodeFacts {
  std::string config_error;  ///< what is wrong with the settings; empty: nothing
  std::string agent;         ///< pid of the agent that runs here; empty: none is known to
  uint32_t cpu_slots = 0;
  bool wants_gpus = true;  ///< nvml is not "none"

  // GPUs.
  int pci_gpus = 0;                 ///< NVIDIA's on the PCI bus
  std::string driver;               ///< version of the kernel's driver, "580.65.06"; empty: not loaded
  bool nouveau = false;             ///< the free driver is loaded, which knows no CUDA
  std::string nvml_error;           ///< why NVML can't be used; empty: it can
  std::vector<GpuFacts> gpus;       ///< that NVML opened
  bool has_uvm = false;             ///< /dev/nvidia-uvm is there
  std::vector<std::string> closed;  ///< device files that this user may not open
  bool has_nvswitch = false;        ///< NVSwitches, which need the fabric manager
  bool fabric_manager = false;      ///< it runs

  // Programs and libraries.
  std::string agent_version;
  std::string trainer;                        ///< path; empty: there is none
  std::string trainer_version;                ///< as it says itself; empty: it did not start
  std::string trainer_error;                  ///< its last words, where it did not start
  std::optional<TrainerLibraries> libraries;  ///< nothing: the trainer does not say
  std::vector<std::string> shadowing;  ///< libraries in LD_LIBRARY_PATH that ranks would load for their own;
                                       ///< the running agent's variable where it can be read

  // Limits and memory: the running agent's, else this process's.
  uint64_t open_files = 0;               ///< hard limit
  std::optional<uint64_t> locked_bytes;  ///< hard limit; nothing: unlimited
  bool has_rdma = false;                 ///< InfiniBand, RoCE or EFA
  uint64_t shm_bytes = 0;                ///< size of /dev/shm; 0: not mounted
  std::optional<uint64_t> memory_free_bytes;
  std::string cgroup_error;  ///< why no cgroup can be made; empty: one can

  // Where the agent keeps its runs.
  std::string state_dir;
  std::string state_dir_error;  ///< why nothing can be written there
  std::string file_system;      ///< "ext4", "nfs"; empty: unknown
  std::optional<uint64_t> disk_free_bytes;
  std::optional<uint64_t> inodes_free;                ///< nothing: without a limit, too
  double disk_bytes_per_second = 0;                   ///< written and synced; 0: not tried
  std::map<std::string, std::string> shared_folders;  ///< path: why it can't be used; "" where it can

  // Clock and network.
  ClockFacts clock;
  Reach imgd;
  bool is_loopback = true;  ///< imgd is on this machine
  bool tls = false;         ///< imgd is spoken to by TLS
  std::optional<int64_t>
      certificate_left_seconds;  ///< of the node's; negative: ran out; nothing: it has none
  std::string renewal_error;  ///< why imgd would not renew it: the node was revoked; empty: it would, or was
                              ///< not asked
  bool has_join_token = false;
  std::string join_token_error;  ///< why nobody joins by it; empty: it looks good, or there is none
  bool is_instance = false;      ///< it joins as an EC2 instance
  std::string ec2_error;         ///< why EC2 does not say which; empty: it does, or was not asked
  std::string tls_error;         ///< why no connection comes about; empty: one does, or none was tried
  std::string own_address;       ///< that other nodes are told
  std::string own_address_error;
  std::string metrics_error;        ///< why metrics_listen can't be listened on; empty: it can, or is off
  bool metrics_are_served = false;  ///< there, by the running agent
};

/// Looks at this machine. Takes some seconds; writes 64 MiB to the state folder, and removes it.
/// `error`: what is wrong with the settings, of which `config` is as much as could be read.
NodeFacts GatherNodeFacts(const Config& config, const std::string& error);

// The parts of the above. `root` is where the machine's /proc, /sys and /dev are: "/", but for tests.
void GatherGpus(const Config& config, NodeFacts& facts, const std::filesystem::path& root = "/");
void GatherLimits(const Config& config, NodeFacts& facts, const std::filesystem::path& root = "/");
void GatherLibraries(NodeFacts& facts, const std::filesystem::path& root = "/");
void GatherStateFolder(const Config& config, NodeFacts& facts);
void GatherNetwork(const Config& config, NodeFacts& facts);
/// Asks imgd for a new certificate, where it can be reached, and throws it away: it says that way whether it
/// would renew the one that is there.
void GatherCertificate(const Config& config, NodeFacts& facts);
/// How far this machine's clock is off imgd's. Nothing where imgd can't be asked.
void GatherClock(const Config& config, NodeFacts& facts);
void GatherTrainer(const Config& config, NodeFacts& facts);

/// Pid of the agent that has the state folder's lock, as /proc/locks has it; empty for none. Takes no lock,
/// which would be in the way of an agent that starts.
std::string AgentOn(const std::filesystem::path& state_dir, const std::filesystem::path& root = "/");
/// Whether a process listens on the TCP port, by its /proc/PID/net and /proc/PID/fd. Where the latter may not
/// be read: whether anybody does.
bool ListensOn(const std::string& process, int port, const std::filesystem::path& root = "/");

/// What `imgtrain --libraries` printed; nothing where that is something else, as of an older one.
std::optional<TrainerLibraries> ParseLibraries(std::string_view text);

/// All checks of a node.
std::vector<Line> ExamineNode(const NodeFacts& facts);

}  // namespace imgd::doctor
