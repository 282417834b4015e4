#include "trainer/optim/weight_average.h"

namespace imgd::trainer {

WeightAverage::WeightAverage(NamedTensors state, double decay) : state_(std::move(state)), decay_(decay) {
  for (const auto& [name, tensor] : state_)
    average_.emplace_back(name, tensor.detach().clone(at::MemoryFormat::Preserve));
}

void WeightAverage::Update() {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> averaged;
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < state_.size(); ++i) {
    auto& mean = average_[i].second;
    const auto& value = state_[i].second;
    if (!mean.is_floating_point()) {
      mean.copy_(value);
      continue;
    }
    averaged.push_back(mean);
    values.push_back(value.detach());
  }
  at::_foreach_lerp_(averaged, values, 1 - decay_);
}

void WeightAverage::Swap() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < state_.size(); ++i) {
    auto value = state_[i].second.detach();
    const auto kept = value.clone(at::MemoryFormat::Preserve);
    value.copy_(average_[i].second);
    average_[i].second.copy_(kept);
  }
}

}  // namespace imgd::trainer
