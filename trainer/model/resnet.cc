// He et al. 2015, "Deep Residual Learning for Image Recognition", as torchvision.models.resnet has it
// ("v1.5": the stride is on the 3x3 convolution), with Xie et al. 2016 (groups), Zagoruyko and Komodakis 2016
// (wide), He et al. 2018 (deep stem and averaging shortcuts, with timm's names) and Zhang 2019 (blurred
// strides).
#include "trainer/torch.h"
//
#include <algorithm>
#include <numeric>

#include "trainer/model/layers.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

namespace nn = torch::nn;

/// Images of fewer channels are not blurred before a stride: the network's input.
constexpr int kLeastBlurredChannels = 16;

/// A convolution without bias; with `blur`, what comes in is smoothed by [1 2 1] both ways first, so that a
/// stride doesn't alias (as FFCV's ImageNet script does it).
class ConvImpl final : public nn::Conv2dImpl {
 public:
  ConvImpl(int in, int out, int kernel, int stride, bool blur, int groups = 1)
      : nn::Conv2dImpl(
            nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false)),
        blur_(blur && stride > 1 && in >= kLeastBlurredChannels) {}

  at::Tensor forward(const at::Tensor& x) { return nn::Conv2dImpl::forward(blur_ ? Blur(x) : x); }

 private:
  at::Tensor Blur(const at::Tensor& x) {
    // Not a buffer, since it is no part of what was learnt.
    if (!kernel_.defined() || kernel_.device() != x.device()) {
      const auto row = at::tensor({1.0F, 2.0F, 1.0F}) / 4;
      kernel_ = at::outer(row, row).expand({x.size(1), 1, 3, 3}).contiguous().to(x.device());
    }
    return at::conv2d(x, kernel_.to(x.dtype()), {}, 1, 1, 1, x.size(1));
  }

  bool blur_;
  at::Tensor kernel_;
};
TORCH_MODULE(Conv);

/// What the models of this family differ by.
struct Architecture {
  const char* name;
  bool bottleneck;
  int blocks[4];
  int groups = 1;
  int group_width = 64;  ///< channels of a group in the first layer
};

constexpr Architecture kArchitectures[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
    {"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4},
    {"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128},
};

/// One block, with torchvision's argument names.
struct BlockShape {
  int inplanes;
  int planes;
  int stride;
  int expansion;
  int groups;
  int group_width;
  double drop_path;
  bool blur;
  bool average_shortcut;

  int width() const { return planes * group_width / 64 * groups; }
  int outplanes() const { return planes * expansion; }
};

/// A residual block: a main path and a shortcut, added.
class ResidualBlock : public nn::Module {
 public:
  explicit ResidualBlock(const BlockShape& shape) : shape_(shape) {}
  virtual at::Tensor forward(at::Tensor x) = 0;
  /// Makes the main path's last batch norm give nothing, so that the block begins as its shortcut.
  virtual void ZeroInit() = 0;

 protected:
  /// Registered last, as torchvision has it.
  void AddShortcut() {
    const BlockShape& s = shape_;
    if (s.stride == 1 && s.inplanes == s.outplanes()) return;
    if (!s.average_shortcut) {
      shortcut_ =
          nn::Sequential(Conv(s.inplanes, s.outplanes(), 1, s.stride, s.blur), BatchNorm(s.outplanes()));
    } else if (s.stride > 1) {
      const auto pool = nn::AvgPool2dOptions(2).stride(s.stride).ceil_mode(true).count_include_pad(false);
      shortcut_ = nn::Sequential(nn::AvgPool2d(pool), Conv(s.inplanes, s.outplanes(), 1, 1, false),
                                 BatchNorm(s.outplanes()));
    } else {
      shortcut_ = nn::Sequential(nn::Identity(), Conv(s.inplanes, s.outplanes(), 1, 1, false),
                                 BatchNorm(s.outplanes()));
    }
    register_module("downsample", shortcut_);
  }

  /// `main`: the main path before its last batch norm.
  at::Tensor Join(BatchNorm& last, const at::Tensor& main, const at::Tensor& x) {
    const auto shortcut = shortcut_.is_empty() ? x : shortcut_->forward(x);
    if (shape_.drop_path == 0) return last->AddRelu(main, shortcut);
    return DropPath(last(main), shape_.drop_path, is_training()).add_(shortcut).relu_();
  }

  BlockShape shape_;

 private:
  nn::Sequential shortcut_{nullptr};
};

class BasicBlock final : public ResidualBlock {
 public:
  explicit BasicBlock(const BlockShape& s) : ResidualBlock(s) {
    conv1_ = register_module("conv1", Conv(s.inplanes, s.planes, 3, s.stride, s.blur));
    bn1_ = register_module("bn1", BatchNorm(s.planes));
    conv2_ = register_module("conv2", Conv(s.planes, s.planes, 3, 1, false));
    bn2_ = register_module("bn2", BatchNorm(s.planes));
    AddShortcut();
  }

  at::Tensor forward(at::Tensor x) override { return Join(bn2_, conv2_(bn1_->Relu(conv1_(x))), x); }
  void ZeroInit() override { nn::init::zeros_(bn2_->weight); }

 private:
  Conv conv1_{nullptr}, conv2_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr};
};

class Bottleneck final : public ResidualBlock {
 public:
  explicit Bottleneck(const BlockShape& s) : ResidualBlock(s) {
    conv1_ = register_module("conv1", Conv(s.inplanes, s.width(), 1, 1, false));
    bn1_ = register_module("bn1", BatchNorm(s.width()));
    conv2_ = register_module("conv2", Conv(s.width(), s.width(), 3, s.stride, s.blur, s.groups));
    bn2_ = register_module("bn2", BatchNorm(s.width()));
    conv3_ = register_module("conv3", Conv(s.width(), s.outplanes(), 1, 1, false));
    bn3_ = register_module("bn3", BatchNorm(s.outplanes()));
    AddShortcut();
  }

  at::Tensor forward(at::Tensor x) override {
    const auto out = bn1_->Relu(conv1_(x));
    return Join(bn3_, conv3_(bn2_->Relu(conv2_(out))), x);
  }
  void ZeroInit() override { nn::init::zeros_(bn3_->weight); }

 private:
  Conv conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

/// Blocks in a row, registered as "0", "1", ...
class Layer final : public nn::Module {
 public:
  void Add(std::shared_ptr<ResidualBlock> block) {
    blocks_.push_back(register_module(std::to_string(blocks_.size()), std::move(block)));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks_) x = block->forward(std::move(x));
    return x;
  }

 private:
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
};

/// torchvision's 7x7 convolution, or three of 3x3 in its place.
nn::Sequential DeepStem() {
  return nn::Sequential(Conv(3, 32, 3, 2, false), BatchNorm(32), nn::ReLU(nn::ReLUOptions(/*inplace=*/true)),
                        Conv(32, 32, 3, 1, false), BatchNorm(32), nn::ReLU(nn::ReLUOptions(/*inplace=*/true)),
                        Conv(32, 64, 3, 1, false));
}

class ResNet final : public Model {
 public:
  ResNet(const Architecture& architecture, const JobSpec::Model& asked, int classes) {
    if (asked.deep_stem) {
      deep_stem_ = register_module("conv1", DeepStem());
    } else {
      conv1_ = register_module("conv1", Conv(3, 64, 7, 2, asked.blurpool));
    }
    bn1_ = register_module("bn1", BatchNorm(64));
    AddLayers(architecture, asked);
    fc_ = register_module("fc", nn::Linear(channels_, classes));
    for (const auto& module : modules(/*include_self=*/false)) {
      if (const auto* conv = module->as<nn::Conv2d>()) {
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      }
      if (auto* block = module->as<ResidualBlock>(); block != nullptr && asked.zero_init_residual)
        block->ZeroInit();
    }
  }

  at::Tensor forward(at::Tensor x) override {
    x = deep_stem_.is_empty() ? conv1_(x) : deep_stem_->forward(x);
    x = bn1_->Relu(x);
    x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (auto& layer : layers_) x = layer->forward(std::move(x));
    return fc_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }
  std::string head() const override { return "fc"; }
  int LayerOf(const std::string& name) const override {
    if (name.starts_with("layer")) return name[5] - '0';
    return name.starts_with("fc.") ? 5 : 0;
  }

 private:
  void AddLayers(const Architecture& architecture, const JobSpec::Model& asked) {
    const auto& counts = architecture.blocks;
    const int blocks = std::accumulate(std::begin(counts), std::end(counts), 0);
    int block = 0;
    int planes = 64;
    for (const int count : counts) {
      auto layer = std::make_shared<Layer>();
      for (int i = 0; i < count; ++i) {
        const BlockShape shape{.inplanes = channels_,
                               .planes = planes,
                               .stride = i == 0 && !layers_.empty() ? 2 : 1,
                               .expansion = architecture.bottleneck ? 4 : 1,
                               .groups = architecture.groups,
                               .group_width = architecture.group_width,
                               .drop_path = DropPathRate(asked.drop_path.value_or(0), block++, blocks),
                               .blur = asked.blurpool,
                               .average_shortcut = asked.average_shortcut};
        if (architecture.bottleneck) {
          layer->Add(std::make_shared<Bottleneck>(shape));
        } else {
          layer->Add(std::make_shared<BasicBlock>(shape));
        }
        channels_ = shape.outplanes();
      }
      layers_.push_back(register_module("layer" + std::to_string(layers_.size() + 1), layer));
      planes *= 2;
    }
  }

  int channels_ = 64;
  Conv conv1_{nullptr};
  nn::Sequential deep_stem_{nullptr};
  BatchNorm bn1_{nullptr};
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<Model> MakeResNet(const JobSpec::Model& asked, const ModelShape& shape) {
  const auto* architecture = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                          [&](const Architecture& a) { return a.name == asked.name; });
  TORCH_CHECK(architecture != std::end(kArchitectures), "no ResNet is called ", asked.name);
  return std::make_shared<ResNet>(*architecture, asked, shape.classes);
}

}  // namespace imgd::trainer
