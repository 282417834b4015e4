#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "imgd/v1/node.pb.h"

namespace imgd {

/// What a GPU did when it was read last. What could not be read is empty, and named in `error`.
struct GpuReading {
  std::optional<double> busy_ratio;  ///< share of time that a kernel ran, from 0 to 1
  std::optional<uint64_t> memory_used_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hertz;
  std::optional<double> energy_joules;  ///< since the driver was loaded
  std::optional<double> memory_clock_hertz;
  std::optional<uint64_t> pcie_sent_bytes;  ///< since about when the agent began
  std::optional<uint64_t> pcie_received_bytes;
  std::optional<uint64_t> nvlink_sent_bytes;  ///< over all links, since the driver was loaded
  std::optional<uint64_t> nvlink_received_bytes;
  std::optional<uint64_t> throttle_reasons;        ///< bits as NVML has them; 0: it is not held back
  std::optional<uint64_t> corrected_ecc_errors;    ///< of its memory, since the driver was loaded
  std::optional<uint64_t> uncorrected_ecc_errors;  ///< the same; nothing where it has no ECC
  std::string error;                               ///< for people; empty when all could be read
  bool is_lost = false;                            ///< it has fallen off its bus
  uint64_t uncorrected_errors = 0;  ///< of its memory, since the driver was loaded; 0 where it has no ECC
  bool remaps_pending = false;      ///< broken rows of its memory wait for a reset to be replaced by others
  bool remap_failed = false;        ///< there is no row left to replace a broken one by
  bool knows_remaps = false;        ///< it can replace rows, or retire pages
  uint64_t hardware_xids = 0;       ///< errors of the hardware that the driver reported since the agent began
  uint64_t program_xids = 0;        ///< those that programs caused
  uint32_t xid = 0;                 ///< the latest error of the hardware that the driver reported; 0: none
  bool is_old = false;  ///< NVML has not answered for several periods: nobody knows what the GPU does now

  /// As the daemon gets it: 0 stands for what could not be read.
  v1::DeviceReading ToProto() const;
  /// What is broken, to go after "GPU 3"; empty for one that can be trained on.
  std::string WhyIll() const;
};

/// Of the errors that the driver reports (NVIDIA, "Xid Errors"): one of the hardware, not of a program.
bool IsOfHardware(uint64_t xid);

/// The node's GPUs through NVML, loaded at run time. One thread at a time.
class Nvml {
 public:
  /// Loads `library` (a path, or a name that the dynamic linker finds) and initialises it.
  /// Errors: kNotFound when there is no such library or no driver; words of NVML's where it refuses.
  static Result<std::unique_ptr<Nvml>> Load(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// GPUs that can be opened, with NVML's index. One that can't is logged and left out.
  const std::vector<v1::Device>& devices() const;
  /// What each device of devices() does now.
  std::vector<GpuReading> Read();
  /// Looks at what went over PCIe, which the driver counts to 4 GiB and then anew: where more than that goes
  /// between two looks, the readings miss it. 0.3 ms for each device.
  void FollowTraffic();

 private:
  struct State;
  explicit Nvml(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Reads the GPUs on a thread of its own: NVML can hang for minutes when a GPU falls off its bus, and the
/// node must not seem dead then. Thread-safe.
class GpuMonitor {
 public:
  /// Reads all devices of `nvml` every `period`, and follows their traffic in between. The first reading is
  /// waited for, at most 2 s, so that a node with a broken GPU says so as soon as it joins.
  GpuMonitor(std::unique_ptr<Nvml> nvml, Duration period);
  /// Waits for a reading in progress; one that hangs is left behind with its thread.
  ~GpuMonitor();

  /// The latest reading of each device, in their order; old ones say so in `error`. Empty before the first.
  std::vector<GpuReading> Latest() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// What the node computes with: its GPUs, or where there are none `cpu_slots` CPU slots.
struct Devices {
  std::vector<v1::Device> list;
  std::unique_ptr<Nvml> nvml;  ///< null on CPU slots
};

/// `library` is NVML's; empty for the system's own, "none" to look for no GPU.
/// Errors: kNotFound where there is neither a GPU nor a CPU slot; a library that was named and can't be used.
Result<Devices> FindDevices(const std::string& library, uint32_t cpu_slots);

}  // namespace imgd
