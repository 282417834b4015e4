#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "imgd/v1/node.pb.h"

namespace imgd {

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
  /// What each device of devices() does now. What can't be read is 0 and named in `error`.
  std::vector<v1::DeviceReading> Read() const;

 private:
  struct State;
  explicit Nvml(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Reads the GPUs on a thread of its own: NVML can hang for minutes when a GPU falls off its bus, and the
/// node must not seem dead then. Thread-safe.
class GpuMonitor {
 public:
  /// Reads all devices of `nvml` every `period`.
  GpuMonitor(std::unique_ptr<Nvml> nvml, Duration period);
  /// Waits for a reading in progress; one that hangs is left behind with its thread.
  ~GpuMonitor();

  /// The latest reading of each device, in their order; old ones say so in `error`. Empty before the first.
  std::vector<v1::DeviceReading> Latest() const;

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
