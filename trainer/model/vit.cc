// Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", in the small size of Touvron et al. 2021
// (DeiT-S), as timm's vit_small_patch16_224 has it: the same parameter names, order and initialisation.
#include "trainer/torch.h"
//
#include <cmath>

#include "trainer/model/layers.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

namespace nn = torch::nn;

constexpr int kPatch = 16;
constexpr int kWidth = 384;
constexpr int kBlocks = 12;
constexpr int kHeads = 6;
constexpr int kMlpRatio = 4;

class Attention final : public nn::Module {
 public:
  Attention() {
    qkv_ = register_module("qkv", nn::Linear(kWidth, 3 * kWidth));
    proj_ = register_module("proj", nn::Linear(kWidth, kWidth));
  }
  /// Tokens [N, T, kWidth].
  at::Tensor forward(const at::Tensor& x) {
    const int64_t images = x.size(0);
    const int64_t tokens = x.size(1);
    const auto qkv = qkv_(x).reshape({images, tokens, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    return proj_(mixed.transpose(1, 2).reshape({images, tokens, kWidth}));
  }

 private:
  nn::Linear qkv_{nullptr}, proj_{nullptr};
};

class Mlp final : public nn::Module {
 public:
  Mlp() {
    fc1_ = register_module("fc1", nn::Linear(kWidth, kMlpRatio * kWidth));
    fc2_ = register_module("fc2", nn::Linear(kMlpRatio * kWidth, kWidth));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2_(at::gelu(fc1_(x))); }

 private:
  nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

class TransformerBlock final : public nn::Module {
 public:
  explicit TransformerBlock(double drop_path) : drop_path_(drop_path) {
    norm1_ = register_module("norm1", ChannelNorm(kWidth));
    attn_ = register_module("attn", std::make_shared<Attention>());
    norm2_ = register_module("norm2", ChannelNorm(kWidth));
    mlp_ = register_module("mlp", std::make_shared<Mlp>());
  }
  at::Tensor forward(at::Tensor x) {
    x = x + DropPath(attn_->forward(norm1_(x)), drop_path_, is_training());
    return x + DropPath(mlp_->forward(norm2_(x)), drop_path_, is_training());
  }

 private:
  double drop_path_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<Mlp> mlp_;
};

class PatchEmbed final : public nn::Module {
 public:
  PatchEmbed() {
    proj_ = register_module("proj", nn::Conv2d(nn::Conv2dOptions(3, kWidth, kPatch).stride(kPatch)));
  }
  /// Images [N, 3, H, W] to patches [N, kWidth, H / kPatch, W / kPatch].
  at::Tensor forward(const at::Tensor& images) { return proj_(images); }

 private:
  nn::Conv2d proj_{nullptr};
};

class ViT final : public Model {
 public:
  ViT(int classes, int image_size, double drop_path) : grid_(image_size / kPatch) {
    cls_token_ = register_parameter("cls_token", at::zeros({1, 1, kWidth}));
    pos_embed_ = register_parameter("pos_embed", at::zeros({1, grid_ * grid_ + 1, kWidth}));
    patch_embed_ = register_module("patch_embed", std::make_shared<PatchEmbed>());
    auto blocks = register_module("blocks", std::make_shared<nn::ModuleListImpl>());
    for (int i = 0; i < kBlocks; ++i) {
      blocks_.push_back(std::make_shared<TransformerBlock>(DropPathRate(drop_path, i, kBlocks)));
      blocks->push_back(blocks_.back());
    }
    norm_ = register_module("norm", ChannelNorm(kWidth));
    head_ = register_module("head", nn::Linear(kWidth, classes));
    InitTransformerWeights(pos_embed_, {});
    nn::init::normal_(cls_token_, 0, 1e-6);
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* linear = module->as<nn::Linear>()) InitTransformerWeights(linear->weight, linear->bias);
    }
  }

  at::Tensor forward(at::Tensor images) override {
    auto x = patch_embed_->forward(images);
    const auto positions = ResizedPositions(pos_embed_, x.size(2), x.size(3));
    x = at::cat({cls_token_.expand({x.size(0), -1, -1}), x.flatten(2).transpose(1, 2)}, 1) + positions;
    for (auto& block : blocks_) x = block->forward(std::move(x));
    return head_(norm_(x).select(1, 0));
  }
  std::string head() const override { return "head"; }
  int LayerOf(const std::string& name) const override {
    if (name.starts_with("blocks.")) return 1 + std::stoi(name.substr(7));
    return name.starts_with("norm.") || name.starts_with("head.") ? kBlocks + 1 : 0;
  }

 private:
  int64_t grid_;
  at::Tensor cls_token_, pos_embed_;
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

}  // namespace

at::Tensor ResizedPositions(const at::Tensor& positions, int64_t height, int64_t width) {
  const int64_t patches = positions.size(1) - 1;
  const auto grid = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(patches))));
  if (height == grid && width == grid) return positions;
  const auto token = positions.slice(1, 0, 1);
  const auto old = positions.slice(1, 1).reshape({1, grid, grid, positions.size(2)}).permute({0, 3, 1, 2});
  const auto resized =
      at::_upsample_bicubic2d_aa(old.to(at::kFloat), {height, width}, /*align_corners=*/false);
  return at::cat(
      {token, resized.permute({0, 2, 3, 1}).reshape({1, height * width, -1}).to(positions.dtype())}, 1);
}

std::shared_ptr<Model> MakeViT(const JobSpec::Model& asked, const ModelShape& shape) {
  return std::make_shared<ViT>(shape.classes, shape.image_size, asked.drop_path.value_or(0));
}

}  // namespace imgd::trainer
