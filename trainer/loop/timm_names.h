#pragma once

#include <string>

namespace imgd::trainer {

/// Our name (torchvision's) of a ConvNeXt's tensor that timm calls so (timm/models/convnext.py): the same
/// network in other words. "stages.1.blocks.0.mlp.fc1.weight" is "features.3.0.block.3.weight". Unchanged
/// where it is none of timm's.
std::string ConvNeXtNameOfTimm(const std::string& name);

}  // namespace imgd::trainer
