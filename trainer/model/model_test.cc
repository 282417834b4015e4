#include "trainer/torch.h"
//
#include <gmock/gmock.h>

#include "common/job_file.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

using testing::HasSubstr;

std::shared_ptr<Model> Make(const std::string& name, int classes) {
  return *MakeModel({.name = name}, classes);
}

int64_t Elements(const NamedTensors& tensors) {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.numel();
  return total;
}

TEST(Model, HasTheParameterCountsThatTorchvisionDocuments) {
  EXPECT_EQ(Elements(Parameters(*Make("resnet18", 1000))), 11'689'512);
  EXPECT_EQ(Elements(Parameters(*Make("resnet34", 1000))), 21'797'672);
  EXPECT_EQ(Elements(Parameters(*Make("resnet50", 1000))), 25'557'032);
}

TEST(Model, EveryNameThatAJobMayUseCanBeBuiltAndOthersCannot) {
  for (const auto& name : ModelNames()) EXPECT_TRUE(MakeModel({.name = name}, 10).has_value()) << name;
  EXPECT_THAT(MakeModel({.name = "resnet51"}, 10).error().message, HasSubstr("resnet50"));
}

TEST(Model, EveryKernelHasChannelsLastStridesThoughItBeOneByOne) {
  for (const auto& [name, parameter] : Parameters(*Make("resnet50", 10))) {
    if (parameter.dim() != 4) continue;
    EXPECT_EQ(parameter.stride(1), 1) << name;
    EXPECT_EQ(parameter.stride(3), parameter.size(1)) << name;
  }
}

TEST(Model, TheSameSeedMakesTheSameWeights) {
  torch::manual_seed(7);
  const auto one = Make("resnet18", 10);
  torch::manual_seed(7);
  const auto two = Make("resnet18", 10);
  EXPECT_TRUE(at::equal(Parameters(*one).front().second, Parameters(*two).front().second));
  EXPECT_TRUE(at::equal(Parameters(*one).back().second, Parameters(*two).back().second));
}

TEST(Model, ResidualBlocksMayBeginAsTheIdentity) {
  const std::pair<std::string, std::string> lasts[] = {{"resnet18", "bn2"}, {"resnet50", "bn3"}};
  for (const auto& [name, last] : lasts) {
    const auto model = *MakeModel({.name = name, .zero_init_residual = true}, 10);
    int zero = 0;
    for (const auto& [parameter, values] : Parameters(*model)) {
      if (!parameter.ends_with(".weight") || values.dim() != 1) continue;
      const bool is_last = parameter.ends_with("." + last + ".weight");
      EXPECT_EQ(values.abs().max().item<float>(), is_last ? 0 : 1) << parameter;
      zero += is_last ? 1 : 0;
    }
    EXPECT_EQ(zero, name == "resnet18" ? 8 : 16);
  }
}

TEST(Model, BatchNormAloneCanBePutIntoEvaluationMode) {
  const auto model = Make("resnet18", 10);
  model->train();
  SetBatchNormTraining(*model, false);
  const auto before = Buffers(*model).front().second.clone();
  model->forward(at::randn({2, 3, 64, 64}));
  EXPECT_TRUE(at::equal(before, Buffers(*model).front().second));
  EXPECT_TRUE(model->is_training());
}

TEST(Model, NormLayersAndBiasesDoNotDecay) {
  int decaying = 0;
  for (const auto& [name, parameter] : Parameters(*Make("resnet18", 10))) {
    if (!Decays(name, parameter)) continue;
    ++decaying;
    EXPECT_TRUE(name == "fc.weight" || name.find("conv") != std::string::npos ||
                name.ends_with("downsample.0.weight"))
        << name;
  }
  EXPECT_EQ(decaying, 21);  // 20 convolutions and the last layer
}

}  // namespace
}  // namespace imgd::trainer
