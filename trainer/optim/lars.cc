#include "trainer/optim/optimizer.h"

namespace imgd::trainer {
namespace {

class Lars final : public Optimizer {
 public:
  Lars(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings)
      : Optimizer(std::move(groups), {{"momentum"}}), settings_(settings) {}

 private:
  void StepGroup(ParameterGroup& group, const std::vector<at::Tensor>& gradients, double learning_rate,
                 const std::optional<at::Tensor>& found_inf) override {
    // No kernel of LibTorch's looks at it here; waiting for the device is the price of fp16.
    if (found_inf && found_inf->item<float>() != 0) return;
    auto changes = gradients;
    if (group.weight_decay != 0) changes = at::_foreach_add(gradients, group.parameters, group.weight_decay);
    if (group.is_norm_or_bias) {
      changes = at::_foreach_mul(changes, learning_rate);
    } else {
      changes = at::_foreach_mul(changes, (Trust(group, gradients) * learning_rate).unbind());
    }
    const auto& velocity = group.state[0];
    at::_foreach_mul_(velocity, settings_.momentum);
    at::_foreach_add_(velocity, changes);
    at::_foreach_sub_(group.parameters, ChangeOf(velocity, changes));
  }

  std::vector<at::Tensor> ChangeOf(const std::vector<at::Tensor>& velocity,
                                   const std::vector<at::Tensor>& changes) const {
    return settings_.nesterov ? at::_foreach_add(changes, velocity, settings_.momentum) : velocity;
  }

  /// One number for each tensor.
  at::Tensor Trust(const ParameterGroup& group, const std::vector<at::Tensor>& gradients) const {
    const auto weights = at::stack(at::_foreach_norm(group.parameters, 2));
    const auto norms = at::stack(at::_foreach_norm(gradients, 2));
    const auto trust = settings_.trust * weights / (norms + group.weight_decay * weights);
    return at::where((weights > 0).logical_and(norms > 0), trust, at::ones_like(trust));
  }

  JobSpec::Optimizer settings_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeLars(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings) {
  return std::make_unique<Lars>(std::move(groups), settings);
}

}  // namespace imgd::trainer
