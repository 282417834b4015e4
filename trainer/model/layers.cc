#include "trainer/model/layers.h"

namespace imgd::trainer {

at::Tensor DropPath(const at::Tensor& x, double rate, bool training) {
  if (!training || rate == 0) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  auto noise = at::empty(shape, x.options()).bernoulli_(1 - rate);
  if (rate < 1) noise.div_(1 - rate);
  return x * noise;
}

double DropPathRate(double last, int block, int blocks) {
  return blocks > 1 ? last * block / (blocks - 1) : 0;
}

void InitTransformerWeights(at::Tensor weight, at::Tensor bias) {
  torch::nn::init::normal_(std::move(weight), 0, 0.02);
  if (bias.defined()) torch::nn::init::zeros_(std::move(bias));
}

torch::nn::LayerNorm ChannelNorm(int channels) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({channels}).eps(1e-6));
}

}  // namespace imgd::trainer
