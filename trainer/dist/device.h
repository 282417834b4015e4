#pragma once

#include <string>

#include "trainer/torch.h"
//
#include "common/error.h"

namespace imgd::trainer {

/// The device of a rank that sees so many `gpus`: cuda:`local_rank` or the CPU. `wanted` is auto (a GPU where
/// there is one), cpu or cuda. Errors: kFailedPrecondition where a GPU is asked for and this rank has none,
/// saying how many it sees.
Result<at::Device> DeviceOf(const std::string& wanted, int local_rank, int gpus);

/// The same for the GPUs that this process sees. Errors: also those of FindCudaParts.
Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank);

/// "cpu", "cuda:0 NVIDIA H100".
std::string DescribeDevice(const at::Device& device);

/// Where a GPU is on the PCI bus, as sysfs names it: "0000:3b:00.0"; empty for the CPU.
std::string PciAddressOf(const at::Device& device);

/// The type that the forward and backward pass compute in, and a sentence for people where that is not, or
/// not well, what was asked for; else empty.
struct ComputeType {
  at::ScalarType type = at::kFloat;
  std::string note;
};

/// `precision` is fp32, tf32, bf16 or fp16. A processor on which oneDNN has no convolutions in that type
/// computes in fp32: LibTorch's own ones take thirty times as long.
ComputeType ChooseComputeType(const std::string& precision, const at::Device& device);

/// Sets what holds for the whole process: the device, compute threads and allocator on the CPU, cuDNN's
/// choice of algorithms; and whether what is computed in fp32 on a GPU may be rounded to TF32, which
/// `precision` fp32 alone forbids.
void SetUpDevice(const at::Device& device, int threads, const std::string& precision);

}  // namespace imgd::trainer
