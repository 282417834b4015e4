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
/// same parameter and buffer names, order and initialisation. The last norm layer of a block starts at 1, as
/// torchvision's does without zero_init_residual.
std::shared_ptr<Model> MakeResNet(ResNetBlock block, const std::vector<int>& blocks_per_layer, int classes);

}  // namespace imgd::trainer
