#include "trainer/optim/loss_scale.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>

namespace imgd::trainer {

LossScale::LossScale(at::Device device, double scale, int64_t streak)
    : scale_(at::full({}, scale, at::dtype(at::kFloat).device(device))),
      streak_(at::full({}, streak, at::dtype(at::kInt).device(device))) {}

std::optional<at::Tensor> LossScale::Unscale(std::vector<at::Tensor> gradients) {
  if (!on()) return std::nullopt;
  torch::NoGradGuard no_grad;
  auto found_inf = at::zeros({}, scale_.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  at::_amp_update_scale_(scale_, streak_, found_inf, 2.0, 0.5, 2000);
  return found_inf;
}

}  // namespace imgd::trainer
