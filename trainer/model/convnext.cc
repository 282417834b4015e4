// Liu et al. 2022, "A ConvNet for the 2020s", as torchvision.models.convnext has it: the same parameter
// names, order and initialisation.
#include "trainer/torch.h"
//
#include "trainer/model/layers.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

namespace nn = torch::nn;

constexpr double kLayerScale = 1e-6;
constexpr double kTinyDropPath = 0.1;  // torchvision's default for convnext_tiny

/// LayerNorm over the channels of images [N, C, H, W].
class LayerNorm2d final : public nn::Module {
 public:
  explicit LayerNorm2d(int channels) : norm_(ChannelNorm(channels)) {
    weight_ = register_parameter("weight", norm_->weight);
    bias_ = register_parameter("bias", norm_->bias);
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::layer_norm(x.permute({0, 2, 3, 1}), {x.size(1)}, weight_, bias_, norm_->options.eps())
        .permute({0, 3, 1, 2});
  }

 private:
  nn::LayerNorm norm_;
  at::Tensor weight_, bias_;
};

/// Channels last, for what works on them as if they were tokens.
struct ToTokens : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.permute({0, 2, 3, 1}); }
};
struct ToImages : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.permute({0, 3, 1, 2}); }
};

/// Modules in a row, as a part of a longer row, which nn::Sequential can't be by itself.
class Row final : public nn::SequentialImpl {
 public:
  using nn::SequentialImpl::SequentialImpl;
  at::Tensor forward(at::Tensor x) { return nn::SequentialImpl::forward(std::move(x)); }
};

/// Depthwise 7x7 convolution, norm, and two linear layers with GELU between them; scaled, and added to what
/// came in.
class ConvNeXtBlock final : public nn::Module {
 public:
  ConvNeXtBlock(int channels, double drop_path) : drop_path_(drop_path) {
    layer_scale_ = register_parameter("layer_scale", at::full({channels, 1, 1}, kLayerScale));
    block_ = register_module(
        "block", nn::Sequential(
                     nn::Conv2d(nn::Conv2dOptions(channels, channels, 7).padding(3).groups(channels)),
                     std::make_shared<ToTokens>(), ChannelNorm(channels), nn::Linear(channels, 4 * channels),
                     nn::GELU(), nn::Linear(4 * channels, channels), std::make_shared<ToImages>()));
  }
  at::Tensor forward(const at::Tensor& x) {
    return DropPath(layer_scale_ * block_->forward(x), drop_path_, is_training()) + x;
  }

 private:
  double drop_path_;
  at::Tensor layer_scale_;
  nn::Sequential block_{nullptr};
};

struct Stage {
  int channels;
  int blocks;
};
constexpr Stage kTiny[] = {{96, 3}, {192, 3}, {384, 9}, {768, 3}};
constexpr int kTinyBlocks = 18;

class ConvNeXt final : public Model {
 public:
  ConvNeXt(int classes, double drop_path) {
    int channels = kTiny[0].channels;
    features_->push_back(std::make_shared<Row>(nn::Conv2d(nn::Conv2dOptions(3, channels, 4).stride(4)),
                                               std::make_shared<LayerNorm2d>(channels)));
    int block = 0;
    for (const Stage& stage : kTiny) {
      if (stage.channels != channels) {
        features_->push_back(
            std::make_shared<Row>(std::make_shared<LayerNorm2d>(channels),
                                  nn::Conv2d(nn::Conv2dOptions(channels, stage.channels, 2).stride(2))));
        channels = stage.channels;
      }
      auto blocks = std::make_shared<Row>();
      for (int i = 0; i < stage.blocks; ++i)
        blocks->push_back(
            std::make_shared<ConvNeXtBlock>(channels, DropPathRate(drop_path, block++, kTinyBlocks)));
      features_->push_back(blocks);
    }
    register_module("features", features_);
    classifier_ = register_module("classifier", nn::Sequential(std::make_shared<LayerNorm2d>(channels),
                                                               nn::Flatten(nn::FlattenOptions().start_dim(1)),
                                                               nn::Linear(channels, classes)));
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2d>()) InitTransformerWeights(conv->weight, conv->bias);
      if (auto* linear = module->as<nn::Linear>()) InitTransformerWeights(linear->weight, linear->bias);
    }
  }

  at::Tensor forward(at::Tensor x) override {
    x = features_->forward(std::move(x));
    return classifier_->forward(at::adaptive_avg_pool2d(x, {1, 1}));
  }
  std::string head() const override { return "classifier.2"; }
  int LayerOf(const std::string& name) const override {
    return name.starts_with("features.") ? name[9] - '0' : static_cast<int>(features_->size());
  }

 private:
  nn::Sequential features_, classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Model> MakeConvNeXt(const JobSpec::Model& asked, const ModelShape& shape) {
  return std::make_shared<ConvNeXt>(shape.classes, asked.drop_path.value_or(kTinyDropPath));
}

}  // namespace imgd::trainer
