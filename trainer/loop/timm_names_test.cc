#include "trainer/loop/timm_names.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

TEST(TimmNames, OfAConvNeXtAreTorchvisionsInOtherWords) {
  EXPECT_EQ(ConvNeXtNameOfTimm("stem.0.weight"), "features.0.0.weight");
  EXPECT_EQ(ConvNeXtNameOfTimm("stem.1.bias"), "features.0.1.bias");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.0.blocks.2.gamma"), "features.1.2.layer_scale");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.1.downsample.1.weight"), "features.2.1.weight");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.2.blocks.8.conv_dw.bias"), "features.5.8.block.0.bias");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.3.blocks.0.norm.weight"), "features.7.0.block.2.weight");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.3.blocks.0.mlp.fc1.weight"), "features.7.0.block.3.weight");
  EXPECT_EQ(ConvNeXtNameOfTimm("stages.3.blocks.0.mlp.fc2.bias"), "features.7.0.block.5.bias");
  EXPECT_EQ(ConvNeXtNameOfTimm("head.norm.weight"), "classifier.0.weight");
  EXPECT_EQ(ConvNeXtNameOfTimm("head.fc.bias"), "classifier.2.bias");
}

TEST(TimmNames, OthersStayAsTheyAre) {
  for (const char* name : {"features.1.0.block.0.weight", "classifier.2.bias", "stages.", "stages.1",
                           "stages.x.blocks.0.gamma", "stages.0.blocks.0.other"}) {
    EXPECT_EQ(ConvNeXtNameOfTimm(name), name);
  }
}

}  // namespace
}  // namespace imgd::trainer
