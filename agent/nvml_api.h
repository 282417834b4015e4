#pragma once

// The part of NVML's documented binary interface that the agent calls (NVML API Reference Guide), declared
// here so that it builds and runs without NVIDIA's headers. The library is loaded at run time.
#include <cstdint>

extern "C" {

struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st*;

/// 0 is NVML_SUCCESS; the others in words: nvmlErrorString.
using nvmlReturn_t = int;

/// Bytes.
struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// Percent of the last sample period.
struct nvmlUtilization_t {
  unsigned int gpu;
  unsigned int memory;
};

/// nvmlTemperatureSensors_t, nvmlClockType_t.
enum : int { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };

/// NVML_DEVICE_NAME_V2_BUFFER_SIZE and NVML_DEVICE_UUID_V2_BUFFER_SIZE.
enum : unsigned { NVML_NAME_BYTES = 96, NVML_UUID_BYTES = 96 };

using nvmlInit_v2_t = nvmlReturn_t (*)();
using nvmlShutdown_t = nvmlReturn_t (*)();
using nvmlErrorString_t = const char* (*)(nvmlReturn_t result);
using nvmlDeviceGetCount_v2_t = nvmlReturn_t (*)(unsigned int* count);
using nvmlDeviceGetHandleByIndex_v2_t = nvmlReturn_t (*)(unsigned int index, nvmlDevice_t* device);
using nvmlDeviceGetName_t = nvmlReturn_t (*)(nvmlDevice_t device, char* name, unsigned int length);
using nvmlDeviceGetUUID_t = nvmlReturn_t (*)(nvmlDevice_t device, char* uuid, unsigned int length);
using nvmlDeviceGetMemoryInfo_t = nvmlReturn_t (*)(nvmlDevice_t device, nvmlMemory_t* memory);
using nvmlDeviceGetUtilizationRates_t = nvmlReturn_t (*)(nvmlDevice_t device, nvmlUtilization_t* utilization);
using nvmlDeviceGetPowerUsage_t = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* milliwatts);
using nvmlDeviceGetTemperature_t = nvmlReturn_t (*)(nvmlDevice_t device, int sensor, unsigned int* celsius);
using nvmlDeviceGetClockInfo_t = nvmlReturn_t (*)(nvmlDevice_t device, int clock, unsigned int* megahertz);

// Optional: what older libraries lack is not looked at.

/// nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlEventType.
enum : int { NVML_CORRECTED = 0, NVML_UNCORRECTED = 1, NVML_VOLATILE_ECC = 0 };
inline constexpr unsigned long long NVML_EVENT_XID = 8;

struct nvmlEventSet_st;
using nvmlEventSet_t = nvmlEventSet_st*;

/// nvmlEventData_t.
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long type;
  unsigned long long data;  ///< of NVML_EVENT_XID: its number
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

using nvmlDeviceGetTotalEccErrors_t = nvmlReturn_t (*)(nvmlDevice_t device, int type, int counter,
                                                       unsigned long long* count);
using nvmlDeviceGetTotalEnergyConsumption_t = nvmlReturn_t (*)(nvmlDevice_t device,
                                                               unsigned long long* millijoules);
using nvmlDeviceGetCurrentClocksThrottleReasons_t = nvmlReturn_t (*)(nvmlDevice_t device,
                                                                     unsigned long long* reasons);

/// Numbers of fields (nvmlFieldValueEnums): counters since the driver was loaded, in KiB for NVLink, whose
/// scope is a link or, with NVML_ALL_LINKS, all of them; in bytes for PCIe, of 32 bits that begin anew at 0
/// when they are full.
enum : unsigned {
  NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138,
  NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139,
  NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197,
  NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198,
  NVML_ALL_LINKS = 0xffffffff,
};

/// nvmlValueType_t.
enum : unsigned {
  NVML_VALUE_UNSIGNED_INT = 1,
  NVML_VALUE_UNSIGNED_LONG = 2,
  NVML_VALUE_UNSIGNED_LONG_LONG = 3
};

struct nvmlFieldValue_t {
  unsigned int fieldId;
  unsigned int scopeId;
  long long timestamp;
  long long latencyUsec;
  unsigned int valueType;
  nvmlReturn_t nvmlReturn;  ///< of this field; its value is only set where it is 0
  union {
    double dVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
  } value;
};

using nvmlDeviceGetFieldValues_t = nvmlReturn_t (*)(nvmlDevice_t device, int count, nvmlFieldValue_t* values);
using nvmlDeviceGetRemappedRows_t = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* corrected,
                                                     unsigned int* uncorrected, unsigned int* pending,
                                                     unsigned int* failed);
using nvmlDeviceGetRetiredPagesPendingStatus_t = nvmlReturn_t (*)(nvmlDevice_t device, int* pending);
using nvmlEventSetCreate_t = nvmlReturn_t (*)(nvmlEventSet_t* set);
using nvmlEventSetFree_t = nvmlReturn_t (*)(nvmlEventSet_t set);
using nvmlDeviceRegisterEvents_t = nvmlReturn_t (*)(nvmlDevice_t device, unsigned long long types,
                                                    nvmlEventSet_t set);
using nvmlEventSetWait_v2_t = nvmlReturn_t (*)(nvmlEventSet_t set, nvmlEventData_t* data,
                                               unsigned int timeout_ms);

}  // extern "C"
