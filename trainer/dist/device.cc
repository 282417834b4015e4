#include "trainer/dist/device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <malloc.h>

#ifdef IMGD_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace imgd::trainer {
namespace {

#ifdef IMGD_CUDA
int GpuCount() { return at::hasCUDA() ? static_cast<int>(c10::cuda::device_count()) : 0; }
std::string GpuName(const at::Device& device) { return at::cuda::getDeviceProperties(device.index())->name; }
bool GpuHasBf16(const at::Device& device) {
  return at::cuda::getDeviceProperties(device.index())->major >= 8;
}
std::string GpuAddress(const at::Device& device) {
  const auto* gpu = at::cuda::getDeviceProperties(device.index());
  return fmt::format("{:04x}:{:02x}:{:02x}.0", gpu->pciDomainID, gpu->pciBusID, gpu->pciDeviceID);
}
void UseGpu(const at::Device& device, bool tf32) {
  c10::cuda::set_device(device.index());
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  // LibTorch's own default is yes for convolutions and no for matrices.
  context.setAllowTF32CuDNN(tf32);
  context.setAllowTF32CuBLAS(tf32);
}
#else
int GpuCount() { return 0; }
std::string GpuName(const at::Device&) { return ""; }
bool GpuHasBf16(const at::Device&) { return true; }
std::string GpuAddress(const at::Device&) { return ""; }
void UseGpu(const at::Device&, bool) {}
#endif

/// Whether oneDNN computes in bf16 or fp16 on this processor, as LibTorch itself asks before it uses it.
bool OneDnnHas(const char* precision) {
  const auto question = c10::Dispatcher::singleton().findSchema(
      {fmt::format("mkldnn::_is_mkldnn_{}_supported", precision), ""});
  return question && question->typed<bool()>().call();
}

/// Each step allocates the same activations anew. By default glibc gives large ones back to the system when
/// they are freed, and the next step pays for every page once more: a sixth of a CPU run's time.
void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kTopPadBytes = 64 << 20;
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_TOP_PAD, kTopPadBytes);
#endif
}

}  // namespace

Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank) {
  const int count = wanted == "cpu" ? 0 : GpuCount();
  if (count == 0) {
    if (wanted != "cuda") return at::Device(at::kCPU);
    return Fail(ErrorCode::kFailedPrecondition, "train.device: cuda is asked for, but this rank sees no GPU");
  }
  if (local_rank >= count) {
    return Fail(ErrorCode::kFailedPrecondition, "local rank {} needs a GPU of its own, but {} can be seen",
                local_rank, count);
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank));
}

std::string DescribeDevice(const at::Device& device) {
  return device.is_cuda() ? fmt::format("{} {}", device.str(), GpuName(device)) : device.str();
}

std::string PciAddressOf(const at::Device& device) { return device.is_cuda() ? GpuAddress(device) : ""; }

ComputeType ChooseComputeType(const std::string& precision, const at::Device& device) {
  const at::ScalarType type = precision == "bf16"   ? at::kBFloat16
                              : precision == "fp16" ? at::kHalf
                                                    : at::kFloat;
  if (precision == "tf32" && device.is_cpu())
    return {type, "train.precision: tf32 is of GPUs; computing in fp32"};
  if (type == at::kFloat) return {type, ""};
  if (device.is_cpu() && !OneDnnHas(precision.c_str())) {
    return {
        at::kFloat,
        fmt::format("train.precision: this processor has no {} convolutions; computing in fp32", precision)};
  }
  if (device.is_cuda() && type == at::kBFloat16 && !GpuHasBf16(device)) {
    return {type, fmt::format("train.precision: {} has no bf16 units and is slow at it; fp16 is faster there",
                              DescribeDevice(device))};
  }
  return {type, ""};
}

void SetUpDevice(const at::Device& device, int threads, const std::string& precision) {
  at::set_num_threads(threads);
  at::set_num_interop_threads(1);
  if (device.is_cpu()) KeepFreedMemory();
  if (device.is_cuda()) UseGpu(device, precision != "fp32");
}

}  // namespace imgd::trainer
