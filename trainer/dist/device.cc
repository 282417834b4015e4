#include "trainer/dist/device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <malloc.h>

#include "trainer/cuda/cuda_parts.h"
#include "trainer/model/layers.h"

namespace imgd::trainer {
namespace {

void UseGpu(const at::Device& device, bool tf32) {
  LoadedCudaParts().Use(device);
  UseNormKernels(&LoadedCudaParts().Norm());
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  // LibTorch's own default is yes for convolutions and no for matrices.
  context.setAllowTF32CuDNN(tf32);
  context.setAllowTF32CuBLAS(tf32);
}

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

Result<at::Device> DeviceOf(const std::string& wanted, int local_rank, int gpus) {
  if (wanted == "cpu" || (gpus == 0 && wanted != "cuda")) return at::Device(at::kCPU);
  if (gpus == 0) {
    return Fail(ErrorCode::kFailedPrecondition, "train.device: cuda is asked for, but this rank sees no GPU");
  }
  if (local_rank >= gpus) {
    return Fail(ErrorCode::kFailedPrecondition, "local rank {} needs a GPU of its own, but {} can be seen",
                local_rank, gpus);
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank));
}

Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank) {
  CudaParts* parts = nullptr;
  if (wanted != "cpu") {
    IMGD_ASSIGN(parts, FindCudaParts(wanted == "cuda"));
  }
  return DeviceOf(wanted, local_rank, parts == nullptr ? 0 : parts->GpuCount());
}

std::string DescribeDevice(const at::Device& device) {
  return device.is_cuda() ? fmt::format("{} {}", device.str(), LoadedCudaParts().NameOf(device))
                          : device.str();
}

std::string PciAddressOf(const at::Device& device) {
  return device.is_cuda() ? LoadedCudaParts().PciAddressOf(device) : "";
}

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
  if (device.is_cuda() && type == at::kBFloat16 && !LoadedCudaParts().HasBf16(device)) {
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
