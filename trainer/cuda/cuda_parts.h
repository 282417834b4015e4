#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trainer/torch.h"
//
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "common/error.h"
#include "trainer/cuda/norm_kernels.h"

/// What needs CUDA's libraries stands in a module of its own, which is loaded where there is a GPU: they are
/// two gigabytes, and linking them costs each start about a third of its time, and 150 MB.
namespace imgd::trainer {

/// Records what work puts into a GPU's queue, and puts it there again.
class GpuRecorder {
 public:
  virtual ~GpuRecorder() = default;
  /// Records what `work` launches; nothing of it is done. Throws what LibTorch throws where something can't
  /// be recorded.
  virtual void Record(const std::function<void()>& work) = 0;
  /// On the current stream.
  virtual void Replay() = 0;
};

/// The module's side. Only for tensors on CUDA devices, but for GpuCount(). Throws what LibTorch throws.
class CudaParts {
 public:
  virtual ~CudaParts() = default;
  /// That this process sees.
  virtual int GpuCount() = 0;
  virtual std::string NameOf(const at::Device& gpu) = 0;
  /// "0000:3b:00.0".
  virtual std::string PciAddressOf(const at::Device& gpu) = 0;
  virtual bool HasBf16(const at::Device& gpu) = 0;
  /// Makes it this thread's device.
  virtual void Use(const at::Device& gpu) = 0;
  /// A place in a gang of `size` ranks that talk by NCCL, connected. A collective that takes longer than
  /// `timeout` ends the process.
  virtual c10::intrusive_ptr<c10d::Backend> JoinNccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                     int size, std::chrono::milliseconds timeout,
                                                     const at::Device& gpu) = 0;
  /// "CUDA 13.0" and "NCCL 2.29.7", on a line each: those that are loaded.
  virtual std::string Versions() = 0;
  /// A CUDA graph.
  virtual std::unique_ptr<GpuRecorder> MakeGraph() = 0;
  virtual NormKernels& Norm() = 0;
};

/// The module, once; null where the program was built without CUDA, or where the machine shows no GPU to this
/// process and `wanted` is false. Errors: kFailedPrecondition with the dynamic linker's words where it is
/// there and can't be loaded.
Result<CudaParts*> FindCudaParts(bool wanted);

/// The module, where FindCudaParts() has found it: before anything is done with a GPU.
CudaParts& LoadedCudaParts();

/// What the module exports: `extern "C" CudaParts* imgd_cuda_parts()`.
inline constexpr const char* kCudaPartsSymbol = "imgd_cuda_parts";

}  // namespace imgd::trainer
