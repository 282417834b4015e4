// A library that answers NVML's calls from a script, so that discovery and readings are tested on any
// machine.
//
// The file in $IMGD_FAKE_NVML_SCRIPT has one setting a line; DEVICE is an index or * for all:
//   count N
//   name DEVICE TEXT...
//   memory DEVICE TOTAL_BYTES USED_BYTES
//   util | power | temperature | clock | memory_clock DEVICE VALUE...
//       percent, mW, degrees C, MHz; each reading takes the next value, and the last one stays
//   energy | throttle | corrected DEVICE VALUE...   mJ, NVML's bits, corrected memory errors
//   pcie_tx | pcie_rx | nvlink_tx | nvlink_rx DEVICE VALUE...   bytes; KiB over all links
//   slow DEVICE MILLISECONDS   how long each reading of it takes
//   ecc | pending | failed DEVICE VALUE...   uncorrected errors; rows that wait to be remapped, and could not
//   be xid DEVICE NUMBER...   each is an event fail init | count CODE fail handle | name | util | memory |
//   power | temperature | clock DEVICE CODE
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/nvml_api.h"

struct nvmlDevice_st {
  unsigned index = 0;
};

namespace {

struct FakeDevice {
  nvmlDevice_st handle;
  std::string name = "Fake GPU";
  nvmlMemory_t memory{};
  std::map<std::string, std::vector<unsigned>> values;
  std::map<std::string, size_t> reads;
  std::map<std::string, int> failures;
};

struct Script {
  std::vector<FakeDevice> devices;
  std::map<std::string, int> failures;
};

Script script;

void SetValue(FakeDevice& device, const std::string& key, std::istringstream in) {
  if (key == "name") {
    std::getline(in >> std::ws, device.name);
  } else if (key == "memory") {
    in >> device.memory.total >> device.memory.used;
    device.memory.free = device.memory.total - device.memory.used;
  } else {
    auto& values = device.values[key];
    values.clear();
    for (unsigned value = 0; in >> value;) values.push_back(value);
  }
}

void Fail(std::istringstream& in) {
  std::string what;
  std::string device;
  int code = 0;
  in >> what;
  if (what == "init" || what == "count") {
    in >> script.failures[what];
    return;
  }
  in >> device >> code;
  for (auto& one : script.devices) {
    if (device == "*" || device == std::to_string(one.handle.index)) one.failures[what] = code;
  }
}

void Load(const char* path) {
  script = Script();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    std::string device;
    if (!(in >> key) || key[0] == '#') continue;
    if (key == "count") {
      size_t count = 0;
      in >> count;
      script.devices.resize(count);
      for (unsigned i = 0; i < count; ++i) script.devices[i].handle.index = i;
    } else if (key == "fail") {
      Fail(in);
    } else {
      in >> device;
      std::string rest;
      std::getline(in, rest);
      for (auto& one : script.devices) {
        if (device == "*" || device == std::to_string(one.handle.index))
          SetValue(one, key, std::istringstream(rest));
      }
    }
  }
}

FakeDevice& Of(nvmlDevice_t device) { return script.devices[device->index]; }

int FailureOf(const FakeDevice& device, const std::string& key) {
  const auto it = device.failures.find(key);
  return it == device.failures.end() ? 0 : it->second;
}

nvmlReturn_t NextValue(nvmlDevice_t handle, const std::string& key, unsigned* out) {
  FakeDevice& device = Of(handle);
  if (const int code = FailureOf(device, key); code != 0) return code;
  const auto& values = device.values[key];
  if (values.empty()) return 3;  // NVML_ERROR_NOT_SUPPORTED
  *out = values[std::min(device.reads[key]++, values.size() - 1)];
  return 0;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() {
  const char* path = std::getenv("IMGD_FAKE_NVML_SCRIPT");
  if (path == nullptr) return 9;  // NVML_ERROR_DRIVER_NOT_LOADED
  Load(path);
  return script.failures["init"];
}

nvmlReturn_t nvmlShutdown() { return 0; }

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case 3:
      return "Not Supported";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(script.devices.size());
  return script.failures["count"];
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index >= script.devices.size()) return 2;
  *device = &script.devices[index].handle;
  return FailureOf(script.devices[index], "handle");
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  std::snprintf(name, length, "%s", Of(device).name.c_str());
  return FailureOf(Of(device), "name");
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012u", device->index);
  return 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  *memory = Of(device).memory;
  return FailureOf(Of(device), "memory");
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  for (const unsigned time : Of(device).values["slow"])
    std::this_thread::sleep_for(std::chrono::milliseconds(time));
  utilization->memory = 0;
  return NextValue(device, "util", &utilization->gpu);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return NextValue(device, "power", milliwatts);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int, unsigned* celsius) {
  return NextValue(device, "temperature", celsius);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, unsigned* megahertz) {
  return NextValue(device, clock == NVML_CLOCK_MEM ? "memory_clock" : "clock", megahertz);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    const unsigned id = values[i].fieldId;
    const bool is_sent = id == NVML_FI_DEV_PCIE_COUNT_TX_BYTES || id == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX;
    const bool is_pcie = id == NVML_FI_DEV_PCIE_COUNT_TX_BYTES || id == NVML_FI_DEV_PCIE_COUNT_RX_BYTES;
    unsigned value = 0;
    values[i].nvmlReturn = NextValue(
        device, is_pcie ? (is_sent ? "pcie_tx" : "pcie_rx") : (is_sent ? "nvlink_tx" : "nvlink_rx"), &value);
    // As an H200's driver (580) has them.
    values[i].valueType = is_pcie ? NVML_VALUE_UNSIGNED_INT : NVML_VALUE_UNSIGNED_LONG_LONG;
    values[i].value.ullVal = value;
  }
  return 0;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
  unsigned value = 0;
  const nvmlReturn_t result = NextValue(device, "energy", &value);
  *millijoules = value;
  return result;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  unsigned value = 0;
  const nvmlReturn_t result = NextValue(device, "throttle", &value);
  *reasons = value;
  return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int, unsigned long long* count) {
  unsigned value = 0;
  const nvmlReturn_t result = NextValue(device, type == NVML_CORRECTED ? "corrected" : "ecc", &value);
  *count = value;
  return result;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned*, unsigned*, unsigned* pending,
                                       unsigned* failed) {
  const nvmlReturn_t result = NextValue(device, "pending", pending);
  return result != 0 ? result : NextValue(device, "failed", failed);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  static char any;
  *set = reinterpret_cast<nvmlEventSet_t>(&any);
  return 0;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t) { return 0; }

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t) { return 0; }

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t* data, unsigned) {
  for (auto& device : script.devices) {
    auto& xids = device.values["xid"];
    if (xids.empty()) continue;
    *data = {.device = &device.handle, .type = NVML_EVENT_XID, .data = xids.front()};
    xids.erase(xids.begin());
    return 0;
  }
  return 10;  // NVML_ERROR_TIMEOUT
}

}  // extern "C"
