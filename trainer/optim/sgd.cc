#include "trainer/optim/optimizer.h"
//
#include <ATen/ops/_fused_sgd.h>

namespace imgd::trainer {
namespace {

/// Momentum buffers start at 0, which is the same as starting without any.
class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings)
      : Optimizer(std::move(groups), {{"momentum"}}),
        momentum_(settings.momentum),
        nesterov_(settings.nesterov) {}

 private:
  void StepGroup(ParameterGroup& group, const std::vector<at::Tensor>& gradients, double learning_rate,
                 const std::optional<at::Tensor>& found_inf) override {
    // The kernel takes no buffers where there is no momentum; they stay 0.
    const at::TensorList buffers = momentum_ == 0 ? at::TensorList() : group.state[0];
    at::_fused_sgd_(group.parameters, gradients, buffers, group.weight_decay, momentum_, learning_rate,
                    /*dampening=*/0, nesterov_, /*maximize=*/false, /*is_first_step=*/false,
                    /*grad_scale=*/{}, found_inf);
  }

  double momentum_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(std::vector<ParameterGroup> groups, const JobSpec::Optimizer& settings) {
  return std::make_unique<Sgd>(std::move(groups), settings);
}

}  // namespace imgd::trainer
