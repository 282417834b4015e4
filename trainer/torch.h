#pragma once

/// What every file here that uses LibTorch includes first; it is precompiled. No protobuf header may meet it
/// (LibTorch ships headers of another protobuf).

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <utility>
#include <vector>

namespace imgd::trainer {

/// Tensors with their names, in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace imgd::trainer
