#include "trainer/cuda/cuda_parts.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace imgd::trainer {
namespace {

class CudaGraph final : public GpuRecorder {
 public:
  void Record(const std::function<void()>& work) override {
    c10::cuda::getCurrentCUDAStream().synchronize();
    // The default stream can't be recorded.
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    // Other threads bring the next batches to the device meanwhile.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      End();
      throw;
    }
    graph_.capture_end();
  }

  void Replay() override { graph_.replay(); }

 private:
  /// After an error, whose words count more than those of this.
  void End() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  at::cuda::CUDAGraph graph_;
};

class LinkedParts final : public CudaParts {
 public:
  int GpuCount() override { return at::hasCUDA() ? static_cast<int>(c10::cuda::device_count()) : 0; }

  std::string NameOf(const at::Device& gpu) override {
    return at::cuda::getDeviceProperties(gpu.index())->name;
  }

  std::string PciAddressOf(const at::Device& gpu) override {
    const auto* of = at::cuda::getDeviceProperties(gpu.index());
    return fmt::format("{:04x}:{:02x}:{:02x}.0", of->pciDomainID, of->pciBusID, of->pciDeviceID);
  }

  bool HasBf16(const at::Device& gpu) override {
    return at::cuda::getDeviceProperties(gpu.index())->major >= 8;
  }

  void Use(const at::Device& gpu) override { c10::cuda::set_device(gpu.index()); }

  c10::intrusive_ptr<c10d::Backend> JoinNccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                             std::chrono::milliseconds timeout,
                                             const at::Device& gpu) override {
    // A collective that fails or takes too long ends the process, whatever its environment says.
    ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", /*overwrite=*/1);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size, options);
    // Now rather than at the first collective, so that what fails here is said to have failed here.
    nccl->eagerConnectSingleDevice(gpu);
    return nccl;
  }

  std::string Versions() override {
    int cuda = 0;
    cudaRuntimeGetVersion(&cuda);
    // Of the library that was loaded, which LD_LIBRARY_PATH may have in the place of LibTorch's.
    int nccl = 0;
    if (void* get = ::dlsym(RTLD_DEFAULT, "ncclGetVersion"); get != nullptr)
      reinterpret_cast<int (*)(int*)>(get)(&nccl);
    return fmt::format("CUDA {}.{}\nNCCL {}.{}.{}\n", cuda / 1000, cuda % 1000 / 10, nccl / 10000,
                       nccl / 100 % 100, nccl % 100);
  }

  std::unique_ptr<GpuRecorder> MakeGraph() override { return std::make_unique<CudaGraph>(); }

  NormKernels& Norm() override { return CudnnNormKernels(); }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) CudaParts* imgd_cuda_parts() {
  static LinkedParts parts;
  return &parts;
}

}  // namespace imgd::trainer
