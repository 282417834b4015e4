#include "trainer/torch.h"
//
#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <set>
#include <string_view>

#include "common/job_file.h"
#include "trainer/model/layers.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

using testing::HasSubstr;

std::shared_ptr<Model> Make(const std::string& name, int classes) {
  return *MakeModel({.name = name}, {.classes = classes});
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
  EXPECT_EQ(Elements(Parameters(*Make("resnet101", 1000))), 44'549'160);
  EXPECT_EQ(Elements(Parameters(*Make("resnet152", 1000))), 60'192'808);
  EXPECT_EQ(Elements(Parameters(*Make("resnext50_32x4d", 1000))), 25'028'904);
  EXPECT_EQ(Elements(Parameters(*Make("wide_resnet50_2", 1000))), 68'883'240);
  EXPECT_EQ(Elements(Parameters(*Make("convnext_tiny", 1000))), 28'589'128);
  EXPECT_EQ(Elements(Parameters(*Make("vit_small_patch16", 1000))), 22'050'664) << "timm's documentation";
}

TEST(Model, EveryNameThatAJobMayUseCanBeBuiltAndOthersCannot) {
  for (const auto& name : ModelNames())
    EXPECT_TRUE(MakeModel({.name = name}, {.classes = 10}).has_value()) << name;
  EXPECT_THAT(MakeModel({.name = "resnet51"}, {.classes = 10}).error().message, HasSubstr("resnet50"));
}

TEST(Model, EveryKernelHasChannelsLastStridesThoughItBeOneByOne) {
  for (const auto& [name, parameter] : Parameters(*Make("resnet50", 10))) {
    if (parameter.dim() != 4) continue;
    EXPECT_EQ(parameter.stride(1), 1) << name;
    EXPECT_EQ(parameter.stride(3), parameter.size(1)) << name;
  }
}

/// What convolutions were given while it lives, on this thread: how many, and the sizes of those whose pixels
/// were not interleaved (channels_last), which a copy would have to put right.
struct WatchedConvolutions {
  int count = 0;
  std::vector<std::string> others;
  at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        if (std::string_view(call.name()) == "aten::convolution") watcher->See(call.inputs()[0].toTensor());
        return nullptr;
      })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  static thread_local WatchedConvolutions* watcher;

  WatchedConvolutions() { watcher = this; }
  ~WatchedConvolutions() { at::removeCallback(handle); }

  void See(const at::Tensor& input) {
    ++count;
    if (!input.is_contiguous(at::MemoryFormat::ChannelsLast))
      others.push_back(fmt::format("{}", fmt::join(input.sizes(), "x")));
  }
};
thread_local WatchedConvolutions* WatchedConvolutions::watcher = nullptr;

TEST(Model, EveryActivationIsChannelsLastThroughTheWholeNet) {
  const std::pair<std::string, int> nets[] = {{"resnet18", 20},
                                              {"resnet50", 53},
                                              {"resnext50_32x4d", 53},
                                              {"convnext_tiny", 22},
                                              {"vit_small_patch16", 1}};
  for (const auto& [name, convolutions] : nets) {
    const auto model = *MakeModel({.name = name}, {.classes = 10, .image_size = 64});
    model->train();
    const auto images = at::randn({2, 3, 64, 64}).contiguous(at::MemoryFormat::ChannelsLast);
    WatchedConvolutions seen;
    model->forward(images);
    EXPECT_EQ(seen.count, convolutions) << name;
    EXPECT_THAT(seen.others, testing::IsEmpty()) << name;
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
    const auto model = *MakeModel({.name = name, .zero_init_residual = true}, {.classes = 10});
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

TEST(Model, NormLayersAndBiasesAreKnown) {
  int weights = 0;
  for (const auto& [name, parameter] : Parameters(*Make("resnet18", 10))) {
    if (IsNormOrBias(name, parameter)) continue;
    ++weights;
    EXPECT_TRUE(name == "fc.weight" || name.find("conv") != std::string::npos ||
                name.ends_with("downsample.0.weight"))
        << name;
  }
  EXPECT_EQ(weights, 21);  // 20 convolutions and the last layer
  for (const auto& [name, parameter] : Parameters(*Make("vit_small_patch16", 10))) {
    const bool weight = name.ends_with(".weight") && name.find("norm") == std::string::npos;
    EXPECT_EQ(IsNormOrBias(name, parameter), !weight) << name;
  }
  for (const auto& [name, parameter] : Parameters(*Make("convnext_tiny", 10))) {
    if (name.ends_with("layer_scale")) {
      EXPECT_TRUE(IsNormOrBias(name, parameter)) << name;
    }
  }
}

TEST(Model, LayersCountFromTheInputToTheHead) {
  for (const char* name : {"resnet18", "resnet50", "convnext_tiny", "vit_small_patch16"}) {
    const auto model = Make(name, 10);
    const int last = model->LayerOf(model->head() + ".weight");
    std::set<int> seen;
    for (const auto& [parameter, values] : Parameters(*model)) {
      seen.insert(model->LayerOf(parameter));
      EXPECT_LE(model->LayerOf(parameter), last) << parameter;
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(last) + 1) << name << ": none is left out";
  }
}

TEST(Model, AnAliasedStrideGrowsNoParametersAndChangesTheResult) {
  torch::manual_seed(1);
  const auto plain = Make("resnet18", 10);
  torch::manual_seed(1);
  const auto blurred = *MakeModel({.name = "resnet18", .blurpool = true}, {.classes = 10});
  ASSERT_EQ(Elements(StateDict(*plain)), Elements(StateDict(*blurred)));
  EXPECT_TRUE(at::equal(Parameters(*plain).back().second, Parameters(*blurred).back().second));
  torch::NoGradGuard no_grad;
  plain->eval();
  blurred->eval();
  const auto images = at::randn({2, 3, 64, 64});
  EXPECT_FALSE(at::allclose(plain->forward(images), blurred->forward(images), 1e-3, 1e-3));
}

TEST(Model, PositionsAreResizedForOtherImages) {
  const auto model = *MakeModel({.name = "vit_small_patch16"}, {.classes = 10, .image_size = 64});
  torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(at::randn({1, 3, 96, 64})).sizes(), (std::vector<int64_t>{1, 10}));
  const auto positions = at::randn({1, 17, 8});
  EXPECT_TRUE(at::equal(ResizedPositions(positions, 4, 4), positions));
  const auto flat = at::ones({1, 17, 8});
  EXPECT_TRUE(at::allclose(ResizedPositions(flat, 7, 2), at::ones({1, 15, 8})));
}

TEST(DropPath, LeavesOutWholeImagesAndKeepsTheMean) {
  torch::manual_seed(3);
  const auto x = at::ones({10'000, 2, 3});
  const auto out = DropPath(x, 0.25, /*training=*/true);
  EXPECT_TRUE(at::equal(DropPath(x, 0.25, /*training=*/false), x));
  EXPECT_NEAR(out.mean().item<float>(), 1, 0.03);
  const auto firsts = out.select(2, 0).select(1, 0);
  EXPECT_TRUE(at::equal(out, firsts.reshape({-1, 1, 1}).expand_as(out))) << "an image is kept or not";
  EXPECT_TRUE(at::allclose(firsts.max(), at::tensor(1 / 0.75F)));
  EXPECT_DOUBLE_EQ(DropPathRate(0.3, 0, 4), 0);
  EXPECT_DOUBLE_EQ(DropPathRate(0.3, 3, 4), 0.3);
}

}  // namespace
}  // namespace imgd::trainer
