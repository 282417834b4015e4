#pragma once

#include <memory>
#include <optional>

#include "trainer/torch.h"
//
#include "common/job_file.h"
#include "trainer/model/model.h"

namespace imgd::trainer {

/// Whether two tensors of the same shape have their elements in the same places.
bool SameLayout(const at::Tensor& a, const at::Tensor& b);

/// Norm of all gradients together, a scalar on their device.
at::Tensor NormOf(const std::vector<at::Tensor>& gradients);

/// Scales the gradients, whose norm together is `norm`, where that is greater than `most`, as
/// torch.nn.utils.clip_grad_norm_ does, without waiting for the device.
void ClipNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double most);

/// Parameters that share their settings, and what is remembered of each.
struct ParameterGroup {
  double weight_decay = 0;
  double rate = 1;  ///< times the learning rate of the step
  bool is_norm_or_bias = false;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<at::Tensor>> state;  ///< by slot, then by parameter
};

/// What the optimiser keeps for each parameter, beginning at 0: its name in checkpoints, and whether it is
/// one number or has the parameter's shape and layout.
struct OptimizerSlot {
  const char* name;
  bool scalar = false;
};

/// Parameters in the groups that the settings make of them: by decay and by rate. Those that need no gradient
/// are left out.
std::vector<ParameterGroup> GroupParameters(const NamedTensors& parameters,
                                            const JobSpec::Optimizer& settings, const Model* model);

/// Changes parameters by their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One step by the gradients that the parameters have. With `found_inf` (fp16) and its value not 0 nothing
  /// changes. Throws c10::Error where a gradient is missing or lies otherwise in memory than its parameter:
  /// fused kernels would go wrong without a word.
  void Step(double learning_rate, const std::optional<at::Tensor>& found_inf = std::nullopt);

  /// Drops the gradients (by reference: they may be views of the Reducer's buckets).
  void ClearGradients();

  /// All gradients, in the order of the groups.
  std::vector<at::Tensor> Gradients() const;

  /// What weight decay adds to the loss whose gradient it is: the sum of weight_decay / 2 * w^2, a scalar on
  /// the parameters' device. 0 where decay is decoupled from the loss (AdamW).
  at::Tensor Penalty() const;

  /// What is remembered, as "<parameter>.<slot>"; copying into it restores it.
  NamedTensors State() const;

 protected:
  Optimizer(std::vector<ParameterGroup> groups, std::vector<OptimizerSlot> slots);

 private:
  virtual bool decay_is_decoupled() const { return false; }
  virtual void StepGroup(ParameterGroup& group, const std::vector<at::Tensor>& gradients,
                         double learning_rate, const std::optional<at::Tensor>& found_inf) = 0;

  std::vector<ParameterGroup> groups_;
  std::vector<OptimizerSlot> slots_;
};

/// By optimizer.kind. `model` tells the depth of each parameter, for layer_decay; null where that is 1.
std::unique_ptr<Optimizer> MakeOptimizer(const NamedTensors& parameters, const JobSpec::Optimizer& settings,
                                         const Model* model);

/// SGD with momentum by LibTorch's fused kernel. The update is torch.optim.SGD's with dampening 0:
/// g += weight_decay * w; b = momentum * b + g; w -= lr * (nesterov ? g + momentum * b : b).
std::unique_ptr<Optimizer> MakeSgd(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings);

/// AdamW (Loshchilov and Hutter 2019) by LibTorch's fused kernel, as torch.optim.AdamW has it.
std::unique_ptr<Optimizer> MakeAdamW(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings);

/// LARS (You et al. 2017) as MLPerf's reference for ResNet-50 has it. For each tensor of weights:
/// r = trust * |w| / (|g| + weight_decay * |w|), 1 where a norm is 0; v = momentum * v + lr * r * (g +
/// weight_decay * w); w -= nesterov ? momentum * v + lr * r * (g + weight_decay * w) : v. Norm layers and
/// biases have r = 1.
std::unique_ptr<Optimizer> MakeLars(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings);

}  // namespace imgd::trainer
