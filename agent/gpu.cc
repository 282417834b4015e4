#include "agent/gpu.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "agent/nvml_api.h"
#include "common/device_figures.h"

namespace imgd {
namespace {

constexpr nvmlReturn_t kGpuIsLost = 15;
/// NVML's bits (nvmlClocksThrottleReasons) that tell of trouble, in words.
constexpr std::pair<uint64_t, const char*> kThrottleWords[] = {
    {0x04, "power cap"}, {0x08, "hardware"}, {0x20, "heat"}, {0x40, "heat"}, {0x80, "power supply"}};
constexpr const char* kSystemLibrary = "libnvidia-ml.so.1";
/// 17 GB/s fill the driver's counter in this time; images for a GPU that trains are some 1 GB/s.
constexpr auto kTrafficPeriod = std::chrono::milliseconds(250);

struct CloseLibrary {
  void operator()(void* handle) const { ::dlclose(handle); }
};

template <typename Function>
Status LoadSymbol(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  if (*out == nullptr) return Fail(ErrorCode::kFailedPrecondition, "the NVML library has no {}", name);
  return {};
}

/// Null where the library is too old to have it.
template <typename Function>
void LoadSymbolIfThere(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

struct Nvml::State {
  std::unique_ptr<void, CloseLibrary> library;
  nvmlInit_v2_t init;
  nvmlShutdown_t shutdown;
  nvmlErrorString_t error_string;
  nvmlDeviceGetCount_v2_t count;
  nvmlDeviceGetHandleByIndex_v2_t handle_by_index;
  nvmlDeviceGetName_t name;
  nvmlDeviceGetUUID_t uuid;
  nvmlDeviceGetMemoryInfo_t memory;
  nvmlDeviceGetUtilizationRates_t utilization;
  nvmlDeviceGetPowerUsage_t power;
  nvmlDeviceGetTemperature_t temperature;
  nvmlDeviceGetClockInfo_t clock;
  nvmlDeviceGetTotalEccErrors_t ecc_errors;
  nvmlDeviceGetTotalEnergyConsumption_t energy;
  nvmlDeviceGetCurrentClocksThrottleReasons_t throttle_reasons;
  nvmlDeviceGetFieldValues_t field_values;
  nvmlDeviceGetRemappedRows_t remapped_rows;
  nvmlDeviceGetRetiredPagesPendingStatus_t retired_pending;
  nvmlEventSetCreate_t create_events;
  nvmlEventSetFree_t free_events;
  nvmlDeviceRegisterEvents_t register_events;
  nvmlEventSetWait_v2_t wait_event;
  nvmlEventSet_t events = nullptr;
  /// Of each device, since the agent began.
  struct Xids {
    uint32_t latest = 0;  ///< of the hardware
    uint64_t of_hardware = 0;
    uint64_t of_programs = 0;
  };
  std::vector<Xids> xids;
  /// A counter of 32 bits that begins anew when it is full, as one that goes on.
  struct Traffic {
    uint64_t total = 0;
    uint32_t last = 0;
    void Add(uint32_t now) {
      total += static_cast<uint32_t>(now - last);
      last = now;
    }
  };
  struct PcieTraffic {
    bool is_known = false;
    Traffic sent;
    Traffic received;
  };
  std::vector<PcieTraffic> pcie;
  std::vector<nvmlDevice_t> handles;
  std::vector<v1::Device> devices;

  Status LoadSymbols();
  Status FindAll();
  /// The device's name, uuid and memory; the first thing that can't be read is the error.
  Result<v1::Device> Describe(unsigned index, nvmlDevice_t handle) const;
  GpuReading ReadOne(nvmlDevice_t handle) const;
  void ReadHealth(nvmlDevice_t handle, GpuReading& reading) const;
  void ReadRest(nvmlDevice_t handle, GpuReading& reading) const;
  void ReadNvlink(nvmlDevice_t handle, GpuReading& reading) const;
  void FollowPcie(size_t device);
  void ListenForXids();
  void TakeXids();
};

Status Nvml::State::LoadSymbols() {
  void* handle = library.get();
  IMGD_TRY(LoadSymbol(handle, "nvmlInit_v2", &init));
  IMGD_TRY(LoadSymbol(handle, "nvmlShutdown", &shutdown));
  IMGD_TRY(LoadSymbol(handle, "nvmlErrorString", &error_string));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetCount_v2", &count));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetHandleByIndex_v2", &handle_by_index));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetName", &name));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetUUID", &uuid));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetMemoryInfo", &memory));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetUtilizationRates", &utilization));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetPowerUsage", &power));
  IMGD_TRY(LoadSymbol(handle, "nvmlDeviceGetTemperature", &temperature));
  LoadSymbolIfThere(handle, "nvmlDeviceGetTotalEccErrors", &ecc_errors);
  LoadSymbolIfThere(handle, "nvmlDeviceGetTotalEnergyConsumption", &energy);
  LoadSymbolIfThere(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", &throttle_reasons);
  LoadSymbolIfThere(handle, "nvmlDeviceGetFieldValues", &field_values);
  LoadSymbolIfThere(handle, "nvmlDeviceGetRemappedRows", &remapped_rows);
  LoadSymbolIfThere(handle, "nvmlDeviceGetRetiredPagesPendingStatus", &retired_pending);
  LoadSymbolIfThere(handle, "nvmlEventSetCreate", &create_events);
  LoadSymbolIfThere(handle, "nvmlEventSetFree", &free_events);
  LoadSymbolIfThere(handle, "nvmlDeviceRegisterEvents", &register_events);
  LoadSymbolIfThere(handle, "nvmlEventSetWait_v2", &wait_event);
  return LoadSymbol(handle, "nvmlDeviceGetClockInfo", &clock);
}

Result<v1::Device> Nvml::State::Describe(unsigned index, nvmlDevice_t handle) const {
  char name_text[NVML_NAME_BYTES] = "";
  char uuid_text[NVML_UUID_BYTES] = "";
  nvmlMemory_t memory_info{};
  nvmlReturn_t result = name(handle, name_text, sizeof name_text);
  if (result == 0) result = uuid(handle, uuid_text, sizeof uuid_text);
  if (result == 0) result = memory(handle, &memory_info);
  if (result != 0) return Fail(ErrorCode::kUnavailable, "{}", error_string(result));
  v1::Device device;
  device.set_index(index);
  device.set_model(name_text);
  device.set_uuid(uuid_text);
  device.set_memory_bytes(memory_info.total);
  return device;
}

Status Nvml::State::FindAll() {
  unsigned found = 0;
  if (const nvmlReturn_t result = count(&found); result != 0) {
    return Fail(ErrorCode::kUnavailable, "NVML can't count the GPUs: {}", error_string(result));
  }
  for (unsigned index = 0; index < found; ++index) {
    nvmlDevice_t handle = nullptr;
    const nvmlReturn_t result = handle_by_index(index, &handle);
    auto device = result == 0 ? Describe(index, handle)
                              : Result<v1::Device>(Fail(ErrorCode::kUnavailable, "{}", error_string(result)));
    if (!device) {
      spdlog::error("gpu={} msg=\"left out: {}\"", index, device.error().message);
      continue;
    }
    handles.push_back(handle);
    devices.push_back(std::move(*device));
  }
  pcie.resize(handles.size());
  ListenForXids();
  return {};
}

void Nvml::State::ListenForXids() {
  xids.resize(handles.size());
  const bool can = create_events != nullptr && free_events != nullptr && register_events != nullptr &&
                   wait_event != nullptr;
  if (!can || create_events(&events) != 0) {
    events = nullptr;
    return;
  }
  for (nvmlDevice_t handle : handles) register_events(handle, NVML_EVENT_XID, events);
}

void Nvml::State::TakeXids() {
  constexpr int kMost = 1000;  // a GPU that never stops must not hold up the readings
  nvmlEventData_t event{};
  for (int i = 0; events != nullptr && i < kMost && wait_event(events, &event, 0) == 0; ++i) {
    for (size_t device = 0; device < handles.size(); ++device) {
      if (handles[device] != event.device || event.data == 0) continue;
      if (IsOfHardware(event.data)) {
        xids[device].latest = static_cast<uint32_t>(event.data);
        ++xids[device].of_hardware;
      } else {
        ++xids[device].of_programs;
      }
    }
  }
}

void Nvml::State::ReadHealth(nvmlDevice_t handle, GpuReading& reading) const {
  unsigned long long errors = 0;
  if (ecc_errors != nullptr && ecc_errors(handle, NVML_UNCORRECTED, NVML_VOLATILE_ECC, &errors) == 0) {
    reading.uncorrected_errors = errors;
    reading.uncorrected_ecc_errors = errors;
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  int pages_pending = 0;
  if (remapped_rows != nullptr && remapped_rows(handle, &corrected, &uncorrected, &pending, &failed) == 0) {
    reading.knows_remaps = true;
    reading.remaps_pending = pending != 0;
    reading.remap_failed = failed != 0;
  } else if (retired_pending != nullptr && retired_pending(handle, &pages_pending) == 0) {
    reading.knows_remaps = true;
    reading.remaps_pending = pages_pending != 0;
  }
}

/// What a GPU or a driver may lack without anything being wrong.
void Nvml::State::ReadRest(nvmlDevice_t handle, GpuReading& reading) const {
  unsigned long long value = 0;
  if (energy != nullptr && energy(handle, &value) == 0)
    reading.energy_joules = static_cast<double>(value) / 1000;
  if (throttle_reasons != nullptr && throttle_reasons(handle, &value) == 0) reading.throttle_reasons = value;
  if (ecc_errors != nullptr && ecc_errors(handle, NVML_CORRECTED, NVML_VOLATILE_ECC, &value) == 0)
    reading.corrected_ecc_errors = value;
  unsigned megahertz = 0;
  if (clock(handle, NVML_CLOCK_MEM, &megahertz) == 0) reading.memory_clock_hertz = megahertz * 1e6;
  ReadNvlink(handle, reading);
}

static std::optional<uint64_t> NumberIn(const nvmlFieldValue_t& field) {
  if (field.nvmlReturn != 0) return std::nullopt;
  switch (field.valueType) {
    case NVML_VALUE_UNSIGNED_INT:
      return field.value.uiVal;
    case NVML_VALUE_UNSIGNED_LONG:
      return field.value.ulVal;
    case NVML_VALUE_UNSIGNED_LONG_LONG:
      return field.value.ullVal;
    default:
      return std::nullopt;
  }
}

void Nvml::State::FollowPcie(size_t device) {
  if (field_values == nullptr) return;
  std::array<nvmlFieldValue_t, 2> fields{};
  fields[0].fieldId = NVML_FI_DEV_PCIE_COUNT_TX_BYTES;
  fields[1].fieldId = NVML_FI_DEV_PCIE_COUNT_RX_BYTES;
  if (field_values(handles[device], static_cast<int>(fields.size()), fields.data()) != 0) return;
  const auto sent = NumberIn(fields[0]);
  const auto received = NumberIn(fields[1]);
  if (!sent || !received) return;
  pcie[device].is_known = true;
  pcie[device].sent.Add(static_cast<uint32_t>(*sent));
  pcie[device].received.Add(static_cast<uint32_t>(*received));
}

void Nvml::State::ReadNvlink(nvmlDevice_t handle, GpuReading& reading) const {
  if (field_values == nullptr) return;
  std::array<nvmlFieldValue_t, 2> fields{};
  fields[0].fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX;
  fields[1].fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX;
  fields[0].scopeId = fields[1].scopeId = NVML_ALL_LINKS;
  if (field_values(handle, static_cast<int>(fields.size()), fields.data()) != 0) return;
  const auto bytes_of_kib = [](const nvmlFieldValue_t& field) -> std::optional<uint64_t> {
    const auto kib = NumberIn(field);
    return kib ? std::optional<uint64_t>(*kib * 1024) : std::nullopt;
  };
  reading.nvlink_sent_bytes = bytes_of_kib(fields[0]);
  reading.nvlink_received_bytes = bytes_of_kib(fields[1]);
}

bool IsOfHardware(uint64_t xid) {
  // As the log pattern `xid` of imgd, but for those that are fatal only at times.
  constexpr std::array<uint64_t, 15> kOfHardware = {46, 48, 61,  62,  64,  74,  79, 92,
                                                    94, 95, 110, 119, 120, 140, 143};
  return xid != 0 && std::find(kOfHardware.begin(), kOfHardware.end(), xid) != kOfHardware.end();
}

std::string GpuReading::WhyIll() const {
  if (is_lost) return "has fallen off its bus";
  if (is_old) return error;
  if (remap_failed) return "has no spare memory left for broken rows: it has to be replaced";
  if (remaps_pending && uncorrected_errors > 0)
    return fmt::format("has {} uncorrected memory errors, and needs a reset", uncorrected_errors);
  if (!knows_remaps && uncorrected_errors > 0)
    return fmt::format("has {} uncorrected memory errors since the driver was loaded", uncorrected_errors);
  if (xid != 0) return fmt::format("reported Xid {}, an error of its hardware, since the agent began", xid);
  return "";
}

GpuReading Nvml::State::ReadOne(nvmlDevice_t handle) const {
  GpuReading reading;
  const auto read = [&](std::string_view what, nvmlReturn_t result) {
    if (result == 0) return true;
    reading.is_lost = reading.is_lost || result == kGpuIsLost;
    reading.error +=
        fmt::format("{}{} can't be read: {}", reading.error.empty() ? "" : "; ", what, error_string(result));
    return false;
  };
  nvmlUtilization_t busy{};
  nvmlMemory_t memory_info{};
  unsigned value = 0;
  if (read(kBusyFigure, utilization(handle, &busy))) reading.busy_ratio = busy.gpu / 100.0;
  if (read(kMemoryFigure, memory(handle, &memory_info))) reading.memory_used_bytes = memory_info.used;
  if (read(kPowerFigure, power(handle, &value))) reading.power_watts = value / 1000.0;
  if (read(kTemperatureFigure, temperature(handle, NVML_TEMPERATURE_GPU, &value)))
    reading.temperature_celsius = value;
  if (read(kSmClockFigure, clock(handle, NVML_CLOCK_SM, &value))) reading.sm_clock_hertz = value * 1e6;
  ReadHealth(handle, reading);
  ReadRest(handle, reading);
  return reading;
}

namespace {

std::string ThrottleText(uint64_t reasons) {
  std::string out;
  for (const auto& [bit, word] : kThrottleWords) {
    if ((reasons & bit) == 0 || out.find(word) != std::string::npos) continue;
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

}  // namespace

v1::DeviceReading GpuReading::ToProto() const {
  v1::DeviceReading out;
  out.set_busy_ratio(busy_ratio.value_or(0));
  out.set_memory_used_bytes(memory_used_bytes.value_or(0));
  out.set_power_watts(power_watts.value_or(0));
  out.set_temperature_celsius(temperature_celsius.value_or(0));
  out.set_sm_clock_hertz(sm_clock_hertz.value_or(0));
  out.set_error(error);
  out.set_throttled_by(ThrottleText(throttle_reasons.value_or(0)));
  out.set_xid(xid);
  return out;
}

Nvml::Nvml(std::unique_ptr<State> state) : state_(std::move(state)) {}

Nvml::~Nvml() {
  if (state_->events != nullptr) state_->free_events(state_->events);
  state_->shutdown();
}

Result<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  auto state = std::make_unique<State>();
  state->library.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (state->library == nullptr) {
    return Fail(ErrorCode::kNotFound, "cannot load the NVML library: {}", ::dlerror());
  }
  IMGD_TRY(state->LoadSymbols());
  if (const nvmlReturn_t result = state->init(); result != 0) {
    return Fail(ErrorCode::kUnavailable, "NVML can't be initialised: {}", state->error_string(result));
  }
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(state)));
  IMGD_TRY(nvml->state_->FindAll());
  return nvml;
}

const std::vector<v1::Device>& Nvml::devices() const { return state_->devices; }

void Nvml::FollowTraffic() {
  for (size_t i = 0; i < state_->handles.size(); ++i) state_->FollowPcie(i);
}

std::vector<GpuReading> Nvml::Read() {
  state_->TakeXids();
  FollowTraffic();
  std::vector<GpuReading> readings;
  for (size_t i = 0; i < state_->handles.size(); ++i) {
    readings.push_back(state_->ReadOne(state_->handles[i]));
    readings.back().xid = state_->xids[i].latest;
    readings.back().hardware_xids = state_->xids[i].of_hardware;
    readings.back().program_xids = state_->xids[i].of_programs;
    if (!state_->pcie[i].is_known) continue;
    readings.back().pcie_sent_bytes = state_->pcie[i].sent.total;
    readings.back().pcie_received_bytes = state_->pcie[i].received.total;
  }
  return readings;
}

struct GpuMonitor::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;  // guarded by mutex, as what follows
  bool ended = false;
  Instant read_at{};  // at first, when the monitor began
  bool has_read = false;
  std::vector<GpuReading> readings;
  std::unique_ptr<Nvml> nvml;  // of the thread
  Duration period{};

  /// Until the next reading is due, or it is to stop.
  void FollowTraffic(std::unique_lock<std::mutex>& lock);
};

void GpuMonitor::Shared::FollowTraffic(std::unique_lock<std::mutex>& lock) {
  const Instant due = read_at + period;
  for (Instant now = read_at; now < due; now = std::chrono::steady_clock::now()) {
    if (changed.wait_until(lock, std::min<Instant>(due, now + kTrafficPeriod), [this] { return stop; }))
      return;
    lock.unlock();
    nvml->FollowTraffic();
    lock.lock();
  }
}

GpuMonitor::GpuMonitor(std::unique_ptr<Nvml> nvml, Duration period) : shared_(std::make_shared<Shared>()) {
  shared_->nvml = std::move(nvml);
  shared_->period = period;
  shared_->read_at = std::chrono::steady_clock::now();
  shared_->readings.resize(shared_->nvml->devices().size());
  std::thread([shared = shared_] {
    std::unique_lock lock(shared->mutex);
    while (!shared->stop) {
      lock.unlock();
      auto readings = shared->nvml->Read();
      lock.lock();
      shared->readings = std::move(readings);
      shared->read_at = std::chrono::steady_clock::now();
      shared->has_read = true;
      shared->changed.notify_all();
      shared->FollowTraffic(lock);
    }
    shared->nvml.reset();
    shared->ended = true;
    shared->changed.notify_all();
  }).detach();
  constexpr auto kPatience = std::chrono::seconds(2);
  std::unique_lock first(shared_->mutex);
  shared_->changed.wait_for(first, kPatience, [&] { return shared_->has_read; });
}

GpuMonitor::~GpuMonitor() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return shared_->ended; });
}

std::vector<GpuReading> GpuMonitor::Latest() const {
  std::unique_lock lock(shared_->mutex);
  auto readings = shared_->readings;
  const auto age = std::chrono::steady_clock::now() - shared_->read_at;
  if (age > 3 * shared_->period) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
    for (auto& reading : readings) {
      reading.is_old = true;
      reading.error = fmt::format("not read for {} s: NVML has not answered since", seconds);
    }
  } else if (!shared_->has_read) {
    readings.clear();
  }
  return readings;
}

Result<Devices> FindDevices(const std::string& library, uint32_t cpu_slots) {
  Devices devices;
  std::string why_no_gpu = "GPUs are not looked for";
  if (library != "none") {
    auto nvml = Nvml::Load(library.empty() ? kSystemLibrary : library);
    // What was asked for by name must be there; the system's own library is on machines with a GPU only.
    if (!nvml && !library.empty()) return tl::unexpected(std::move(nvml).error());
    if (nvml && !(*nvml)->devices().empty()) {
      devices.list = (*nvml)->devices();
      devices.nvml = std::move(*nvml);
      return devices;
    }
    why_no_gpu = nvml ? "NVML shows no GPU" : nvml.error().message;
  }
  if (cpu_slots == 0) {
    return Fail(
        ErrorCode::kNotFound,
        "this node has nothing to compute with: {}, and --cpu-slots is 0; give it a number of CPU slots",
        why_no_gpu);
  }
  for (uint32_t index = 0; index < cpu_slots; ++index) {
    v1::Device device;
    device.set_index(index);
    device.set_model("cpu");
    devices.list.push_back(std::move(device));
  }
  return devices;
}

}  // namespace imgd
