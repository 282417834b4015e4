#include "trainer/dist/device.h"

#ifdef IMGD_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace imgd::trainer {
namespace {

#ifdef IMGD_CUDA
int GpuCount() { return at::hasCUDA() ? static_cast<int>(c10::cuda::device_count()) : 0; }
std::string GpuName(const at::Device& device) { return at::cuda::getDeviceProperties(device.index())->name; }
void UseGpu(const at::Device& device) {
  c10::cuda::set_device(device.index());
  at::globalContext().setBenchmarkCuDNN(true);
}
#else
int GpuCount() { return 0; }
std::string GpuName(const at::Device&) { return ""; }
void UseGpu(const at::Device&) {}
#endif

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

void SetUpDevice(const at::Device& device, int threads) {
  at::set_num_threads(threads);
  at::set_num_interop_threads(1);
  if (device.is_cuda()) UseGpu(device);
}

}  // namespace imgd::trainer
