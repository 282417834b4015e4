#pragma once

#include "trainer/torch.h"
//
#include "common/error.h"

namespace imgd::trainer {

/// The device of this rank: cuda:`local_rank` or the CPU. `wanted` is auto (a GPU where there is one), cpu or
/// cuda. Errors: kFailedPrecondition where a GPU is asked for and this rank has none, saying how many it
/// sees.
Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank);

/// "cpu", "cuda:0 NVIDIA H100".
std::string DescribeDevice(const at::Device& device);

/// Sets what holds for the whole process: the device, compute threads on the CPU, cuDNN's choice of
/// algorithms.
void SetUpDevice(const at::Device& device, int threads);

}  // namespace imgd::trainer
