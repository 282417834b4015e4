#pragma once

#include "trainer/torch.h"

namespace imgd::trainer {

/// Whether two tensors of the same shape have their elements in the same places.
bool SameLayout(const at::Tensor& a, const at::Tensor& b);

/// Scales the gradients where the norm of all of them together is greater than `most`, as
/// torch.nn.utils.clip_grad_norm_ does; returns that norm as it was, without waiting for the device.
at::Tensor ClipNorm(const std::vector<at::Tensor>& gradients, double most);

/// SGD with momentum by LibTorch's fused kernel, in two groups: parameters that decay and those that do not.
/// The update is torch.optim.SGD's with dampening 0: g += weight_decay * w; b = momentum * b + g;
/// w -= lr * (nesterov ? g + momentum * b : b).
class Sgd {
 public:
  struct Options {
    double momentum = 0.9;
    bool nesterov = true;
    double weight_decay = 1e-4;
  };

  /// Momentum buffers start at 0, which is the same as starting without any, and have their parameters'
  /// layout.
  Sgd(const NamedTensors& parameters, Options options);

  /// One step by the gradients that the parameters have. With `found_inf` (fp16) and its value not 0 nothing
  /// changes. Throws c10::Error where a gradient is missing or lies otherwise in memory than its parameter:
  /// the fused kernel would go wrong without a word.
  void Step(double learning_rate, const std::optional<at::Tensor>& found_inf = std::nullopt);

  /// Drops the gradients (by reference: they may be views of the Reducer's buckets).
  void ClearGradients();

  /// Momentum buffers by parameter name, for checkpoints; copying into them restores them.
  NamedTensors MomentumBuffers() const;

  /// All gradients, in the order of the groups.
  std::vector<at::Tensor> Gradients() const;

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> momentum;
  };

  Options options_;
  Group groups_[2];
};

}  // namespace imgd::trainer
