#include "trainer/optim/optimizer.h"

#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

namespace imgd::trainer {

bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t i = 0; i < a.dim(); ++i) {
    // A stride along a size of 1 moves nothing.
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

at::Tensor NormOf(const std::vector<at::Tensor>& gradients) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
}

void ClipNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double most) {
  at::_foreach_mul_(gradients, (most / (norm + 1e-6)).clamp_max(1.0));
}

namespace {

constexpr std::string_view kWeightName = ".weight";

/// Of layers whose weights are matrices or kernels, which norm layers' are not.
std::set<std::string> BiasesOf(const NamedTensors& parameters) {
  std::set<std::string> names;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.dim() > 1 && name.ends_with(kWeightName))
      names.insert(name.substr(0, name.size() - kWeightName.size()) + ".bias");
  }
  return names;
}

}  // namespace

std::vector<ParameterGroup> GroupParameters(const NamedTensors& parameters,
                                            const JobSpec::Optimizer& settings, const Model* model) {
  std::map<std::tuple<bool, double, int>, size_t> index;  // of the groups, by kind, decay and depth
  const auto biases = BiasesOf(parameters);
  std::vector<ParameterGroup> groups;
  const bool layered = model != nullptr && settings.layer_decay < 1;
  const int last = layered ? model->LayerOf(model->head() + ".weight") : 0;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    const bool norm = IsNormOrBias(name, parameter);
    const int below = layered ? last - model->LayerOf(name) : 0;
    double decay = norm ? settings.norm_weight_decay : settings.weight_decay;
    if (biases.contains(name)) decay = settings.bias_weight_decay.value_or(decay);
    const auto [at, is_new] = index.try_emplace({norm, decay, below}, groups.size());
    if (is_new) {
      groups.push_back(
          {.weight_decay = decay, .rate = std::pow(settings.layer_decay, below), .is_norm_or_bias = norm});
    }
    groups[at->second].names.push_back(name);
    groups[at->second].parameters.push_back(parameter);
  }
  return groups;
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::vector<OptimizerSlot> slots)
    : groups_(std::move(groups)), slots_(std::move(slots)) {
  for (auto& group : groups_) {
    group.state.resize(slots_.size());
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      for (const auto& parameter : group.parameters) {
        const auto values = parameter.detach();
        group.state[slot].push_back(slots_[slot].scalar ? at::zeros({}, values.options())
                                                        : at::zeros_like(values, at::MemoryFormat::Preserve));
      }
    }
  }
}

void Optimizer::Step(double learning_rate, const std::optional<at::Tensor>& found_inf) {
  torch::NoGradGuard no_grad;
  for (auto& group : groups_) {
    std::vector<at::Tensor> gradients;
    gradients.reserve(group.parameters.size());
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& parameter = group.parameters[i];
      const auto& gradient = parameter.grad();
      TORCH_CHECK(gradient.defined(), group.names[i], " has no gradient");
      bool same = SameLayout(parameter, gradient);
      for (size_t slot = 0; slot < slots_.size(); ++slot)
        same = same && (slots_[slot].scalar || SameLayout(parameter, group.state[slot][i]));
      TORCH_CHECK(same, group.names[i], ": strides of parameter ", parameter.strides(),
                  " differ from those of its "
                  "gradient, ",
                  gradient.strides(), ", or of the optimiser's state");
      gradients.push_back(gradient);
    }
    StepGroup(group, gradients, learning_rate * group.rate, found_inf);
  }
}

void Optimizer::ClearGradients() {
  for (auto& group : groups_) {
    for (auto& parameter : group.parameters) parameter.mutable_grad() = at::Tensor();
  }
}

std::vector<at::Tensor> Optimizer::Gradients() const {
  std::vector<at::Tensor> out;
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) out.push_back(parameter.grad());
  }
  return out;
}

at::Tensor Optimizer::Penalty() const {
  torch::NoGradGuard no_grad;
  auto sum = at::zeros({}, groups_.front().parameters.front().options().dtype(at::kFloat));
  if (decay_is_decoupled()) return sum;
  for (const auto& group : groups_) {
    if (group.weight_decay == 0) continue;
    const auto norms = at::stack(at::_foreach_norm(group.parameters, 2));
    sum += norms.square().sum() * (group.weight_decay / 2);
  }
  return sum;
}

NamedTensors Optimizer::State() const {
  NamedTensors out;
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      for (size_t slot = 0; slot < slots_.size(); ++slot)
        out.emplace_back(group.names[i] + "." + slots_[slot].name, group.state[slot][i]);
    }
  }
  return out;
}

std::unique_ptr<Optimizer> MakeOptimizer(const NamedTensors& parameters, const JobSpec::Optimizer& settings,
                                         const Model* model) {
  auto groups = GroupParameters(parameters, settings, model);
  if (settings.kind == "adamw") return MakeAdamW(std::move(groups), settings);
  if (settings.kind == "lars") return MakeLars(std::move(groups), settings);
  return MakeSgd(std::move(groups), settings);
}

}  // namespace imgd::trainer
