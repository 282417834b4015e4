#include "trainer/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

#include "trainer/model/model.h"

namespace imgd::trainer {

bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t i = 0; i < a.dim(); ++i) {
    // A stride along a size of 1 moves nothing.
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

at::Tensor ClipNorm(const std::vector<at::Tensor>& gradients, double most) {
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  at::_foreach_mul_(gradients, (most / (norm + 1e-6)).clamp_max(1.0));
  return norm;
}

Sgd::Sgd(const NamedTensors& parameters, Options options) : options_(options) {
  groups_[0].weight_decay = options.weight_decay;
  for (const auto& [name, parameter] : parameters) {
    auto& group = groups_[Decays(name, parameter) ? 0 : 1];
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    group.momentum.push_back(at::zeros_like(parameter.detach(), at::MemoryFormat::Preserve));
  }
}

void Sgd::Step(double learning_rate, const std::optional<at::Tensor>& found_inf) {
  torch::NoGradGuard no_grad;
  for (auto& group : groups_) {
    if (group.parameters.empty()) continue;
    std::vector<at::Tensor> gradients;
    gradients.reserve(group.parameters.size());
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& parameter = group.parameters[i];
      const auto& gradient = parameter.grad();
      TORCH_CHECK(gradient.defined(), group.names[i], " has no gradient");
      TORCH_CHECK(SameLayout(parameter, gradient) && SameLayout(parameter, group.momentum[i]), group.names[i],
                  ": strides of parameter ", parameter.strides(), ", gradient ", gradient.strides(),
                  " and momentum ", group.momentum[i].strides(), " differ");
      gradients.push_back(gradient);
    }
    at::_fused_sgd_(group.parameters, gradients, group.momentum, group.weight_decay, options_.momentum,
                    learning_rate, /*dampening=*/0, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
  }
}

void Sgd::ClearGradients() {
  for (auto& group : groups_) {
    for (auto& parameter : group.parameters) parameter.mutable_grad() = at::Tensor();
  }
}

NamedTensors Sgd::MomentumBuffers() const {
  NamedTensors out;
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) out.emplace_back(group.names[i], group.momentum[i]);
  }
  return out;
}

std::vector<at::Tensor> Sgd::Gradients() const {
  std::vector<at::Tensor> out;
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) out.push_back(parameter.grad());
  }
  return out;
}

}  // namespace imgd::trainer
