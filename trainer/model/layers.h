#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "trainer/cuda/norm_kernels.h"
#include "trainer/torch.h"

namespace imgd::trainer {

/// How batch norm reaches the other ranks; one for all layers of a model.
struct SumOverRanks {
  std::function<void(at::Tensor&)> sum;  ///< of all ranks' tensors of this shape, in place
  bool has_images = true;  ///< false: this rank's images only stand in for none, and don't count
};

/// By which all batch norms are computed from now on, where it can; null: by none.
void UseNormKernels(NormKernels* kernels);

/// Batch norm, and the ReLU that mostly follows; with SynchronizeBatchNorm() its statistics while training
/// are those of all ranks' images together (as torch.nn.SyncBatchNorm's), for which every rank must pass the
/// same layers in the same order.
class BatchNormImpl final : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;
  at::Tensor forward(const at::Tensor& x);
  /// relu(forward(x)).
  at::Tensor Relu(const at::Tensor& x);
  /// relu(forward(x) + shortcut).
  at::Tensor AddRelu(const at::Tensor& x, const at::Tensor& shortcut);
  void SetSum(std::shared_ptr<const SumOverRanks> over_ranks) { over_ranks_ = std::move(over_ranks); }

 private:
  /// By NormKernels; nothing where they can't.
  std::optional<at::Tensor> Fused(NormKernels::Then then, const at::Tensor& x, const at::Tensor& shortcut);

  std::shared_ptr<const SumOverRanks> over_ranks_;  ///< null: of this rank alone
};
TORCH_MODULE(BatchNorm);

/// Stochastic depth (Huang et al. 2016): while training, a share `rate` of the images of `x` [N, ...] becomes
/// 0 and the others grow by 1 / (1 - rate), as torchvision.ops.StochasticDepth does with mode "row". Draws
/// from LibTorch's global generator of the device, where `rate` is above 0.
at::Tensor DropPath(const at::Tensor& x, double rate, bool training);

/// The rate of block `block` of `blocks`: rises from 0 in the first to `last` in the last.
double DropPathRate(double last, int block, int blocks);

/// Weights from a normal distribution with standard deviation 0.02 and biases of 0, which is what
/// trunc_normal_(std=0.02) amounts to: its bounds are a hundred deviations away.
void InitTransformerWeights(at::Tensor weight, at::Tensor bias);

/// LayerNorm over channels with `epsilon` 1e-6, as both families of transformers' relatives have it.
torch::nn::LayerNorm ChannelNorm(int channels);

}  // namespace imgd::trainer
