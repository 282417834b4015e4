#include "trainer/model/resnet.h"

namespace imgd::trainer {
namespace {

namespace nn = torch::nn;

nn::Conv2d Conv(int in, int out, int kernel, int stride, int padding) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
}

/// The shape of one block; torchvision's argument names.
struct BlockShape {
  int inplanes;
  int planes;
  int stride;
  int expansion;
  bool downsample() const { return stride != 1 || inplanes != planes * expansion; }
};

/// A residual block: a main path and a shortcut, added.
class Block : public nn::Module {
 public:
  explicit Block(const BlockShape& shape) : shape_(shape) {}
  virtual at::Tensor forward(at::Tensor x) = 0;
  /// Makes the main path's last batch norm give nothing, so that the block begins as its shortcut.
  virtual void ZeroInit() = 0;

 protected:
  /// Registered last, as torchvision has it.
  void AddShortcut() {
    if (!shape_.downsample()) return;
    const int out = shape_.planes * shape_.expansion;
    shortcut_ = register_module(
        "downsample", nn::Sequential(Conv(shape_.inplanes, out, 1, shape_.stride, 0), nn::BatchNorm2d(out)));
  }
  at::Tensor Shortcut(const at::Tensor& x) { return shortcut_ ? shortcut_->forward(x) : x; }

  BlockShape shape_;

 private:
  nn::Sequential shortcut_{nullptr};
};

class BasicBlock final : public Block {
 public:
  explicit BasicBlock(const BlockShape& s) : Block(s) {
    conv1_ = register_module("conv1", Conv(s.inplanes, s.planes, 3, s.stride, 1));
    bn1_ = register_module("bn1", nn::BatchNorm2d(s.planes));
    conv2_ = register_module("conv2", Conv(s.planes, s.planes, 3, 1, 1));
    bn2_ = register_module("bn2", nn::BatchNorm2d(s.planes));
    AddShortcut();
  }

  at::Tensor forward(at::Tensor x) override {
    auto out = bn1_(conv1_(x)).relu_();
    out = bn2_(conv2_(out));
    return out.add_(Shortcut(x)).relu_();
  }
  void ZeroInit() override { nn::init::zeros_(bn2_->weight); }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
};

class Bottleneck final : public Block {
 public:
  explicit Bottleneck(const BlockShape& s) : Block(s) {
    conv1_ = register_module("conv1", Conv(s.inplanes, s.planes, 1, 1, 0));
    bn1_ = register_module("bn1", nn::BatchNorm2d(s.planes));
    conv2_ = register_module("conv2", Conv(s.planes, s.planes, 3, s.stride, 1));
    bn2_ = register_module("bn2", nn::BatchNorm2d(s.planes));
    conv3_ = register_module("conv3", Conv(s.planes, s.planes * s.expansion, 1, 1, 0));
    bn3_ = register_module("bn3", nn::BatchNorm2d(s.planes * s.expansion));
    AddShortcut();
  }

  at::Tensor forward(at::Tensor x) override {
    auto out = bn1_(conv1_(x)).relu_();
    out = bn2_(conv2_(out)).relu_();
    out = bn3_(conv3_(out));
    return out.add_(Shortcut(x)).relu_();
  }
  void ZeroInit() override { nn::init::zeros_(bn3_->weight); }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

/// Blocks in a row, registered as "0", "1", ...
class Layer final : public nn::Module {
 public:
  void Add(std::shared_ptr<Block> block) {
    blocks_.push_back(register_module(std::to_string(blocks_.size()), std::move(block)));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks_) x = block->forward(std::move(x));
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

class ResNet final : public Model {
 public:
  ResNet(ResNetBlock block, const std::vector<int>& blocks_per_layer, int classes, bool zero_init_residual) {
    const int expansion = block == ResNetBlock::kBottleneck ? 4 : 1;
    conv1_ = register_module("conv1", Conv(3, 64, 7, 2, 3));
    bn1_ = register_module("bn1", nn::BatchNorm2d(64));
    int inplanes = 64;
    int planes = 64;
    for (size_t i = 0; i < blocks_per_layer.size(); ++i) {
      auto layer = std::make_shared<Layer>();
      for (int j = 0; j < blocks_per_layer[i]; ++j) {
        const BlockShape shape{inplanes, planes, j == 0 && i > 0 ? 2 : 1, expansion};
        if (block == ResNetBlock::kBottleneck) {
          layer->Add(std::make_shared<Bottleneck>(shape));
        } else {
          layer->Add(std::make_shared<BasicBlock>(shape));
        }
        inplanes = planes * expansion;
      }
      layers_.push_back(register_module("layer" + std::to_string(i + 1), layer));
      planes *= 2;
    }
    fc_ = register_module("fc", nn::Linear(inplanes, classes));
    for (const auto& module : modules(/*include_self=*/false)) {
      if (const auto* conv = module->as<nn::Conv2d>()) {
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      }
      if (auto* residual = module->as<Block>(); residual != nullptr && zero_init_residual)
        residual->ZeroInit();
    }
  }

  at::Tensor forward(at::Tensor x) override {
    x = bn1_(conv1_(x)).relu_();
    x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (auto& layer : layers_) x = layer->forward(std::move(x));
    return fc_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<Model> MakeResNet(ResNetBlock block, const std::vector<int>& blocks_per_layer, int classes,
                                  bool zero_init_residual) {
  return std::make_shared<ResNet>(block, blocks_per_layer, classes, zero_init_residual);
}

}  // namespace imgd::trainer
