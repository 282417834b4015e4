#include "trainer/optim/optimizer.h"
//
#include <ATen/ops/_fused_adamw.h>

namespace imgd::trainer {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings)
      : Optimizer(std::move(groups), {{"exp_avg"}, {"exp_avg_sq"}, {"step", /*scalar=*/true}}),
        settings_(settings) {}

 private:
  bool decay_is_decoupled() const override { return true; }
  void StepGroup(ParameterGroup& group, const std::vector<at::Tensor>& gradients, double learning_rate,
                 const std::optional<at::Tensor>& found_inf) override {
    const auto& steps = group.state[2];
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(group.parameters, gradients, group.state[0], group.state[1], /*max_exp_avg_sqs=*/{},
                      steps, learning_rate, settings_.beta1, settings_.beta2, group.weight_decay,
                      settings_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, found_inf);
    // A step that was left out is none.
    if (found_inf) at::_foreach_sub_(steps, std::vector<at::Tensor>(steps.size(), found_inf->squeeze()));
  }

  JobSpec::Optimizer settings_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings) {
  return std::make_unique<AdamW>(std::move(groups), settings);
}

}  // namespace imgd::trainer
