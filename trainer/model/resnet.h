#pragma once

#include <vector>

#include "trainer/model/model.h"

namespace imgd::trainer {

/// Kind of residual block.
enum class ResNetBlock {
  kBasic,       ///< two 3x3 convolutions
  kBottleneck,  ///< 1x1, 3x3 with the stride, 1x1 with four times the width
};

/// He et al. 2015, as torchvision.models.resnet has it ("v1.5": the stride is on the 3x3 convolution): the
/// same parameter and buffer names, order and initialisation. With `zero_init_residual` the last norm layer
/// of each block starts at 0 instead of 1 (Goyal et al. 2017).
std::shared_ptr<Model> MakeResNet(ResNetBlock block, const std::vector<int>& blocks_per_layer, int classes,
                                  bool zero_init_residual);

}  // namespace imgd::trainer
