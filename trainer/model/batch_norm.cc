#include "trainer/model/layers.h"

namespace imgd::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

NormKernels* norm_kernels = nullptr;

/// Everything but channels of [N, C, H, W].
constexpr int64_t kAllButChannels[] = {0, 2, 3};

/// Sums of each channel, over all ranks.
struct Moments {
  at::Tensor count;     ///< of values, a double
  at::Tensor mean;      ///< [C] floats
  at::Tensor variance;  ///< [C] floats, biased
};

/// In doubles, in which the difference of squares is exact enough.
Moments MomentsOfAll(const at::Tensor& x, const SumOverRanks& over_ranks) {
  const auto [variance, mean] = at::var_mean(x.to(at::kFloat), kAllButChannels, /*correction=*/0);
  const auto own_mean = mean.to(at::kDouble);
  const double own = over_ranks.has_images ? static_cast<double>(x.numel() / x.size(1)) : 0;
  const auto count = at::full({1}, own, own_mean.options());
  auto sums = at::cat({count, own * own_mean, own * (variance.to(at::kDouble) + own_mean * own_mean)});
  over_ranks.sum(sums);
  const int64_t channels = x.size(1);
  const auto total = sums.narrow(0, 0, 1);
  const auto values = total.clamp_min(1);
  const auto all_mean = sums.narrow(0, 1, channels) / values;
  const auto all_variance = sums.narrow(0, 1 + channels, channels) / values - all_mean * all_mean;
  return {total, all_mean.to(at::kFloat), all_variance.clamp_min(0).to(at::kFloat)};
}

at::Tensor ByChannel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

/// y = (x - mean) * w / sqrt(variance + epsilon) + b with moments of all ranks (Ioffe and Szegedy 2015).
struct Normalise : public torch::autograd::Function<Normalise> {
  /// `over_ranks` must outlive the backward pass.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& count, const at::Tensor& mean,
                            const at::Tensor& variance, double epsilon, const SumOverRanks* over_ranks) {
    context->save_for_backward({x, weight, count, mean, (variance + epsilon).rsqrt()});
    context->saved_data["over_ranks"] = reinterpret_cast<int64_t>(over_ranks);
    context->saved_data["counts"] = over_ranks->has_images;
    return at::batch_norm(x, weight, bias, mean, variance, /*training=*/false, 0, epsilon, false);
  }

  /// With n values of all ranks, d = dL/dy and c = x - mean: dL/dx = (d - sum(d) / n - c * sum(d * c) / (n *
  /// (variance + epsilon))) * w / sqrt(variance + epsilon). Gradients of weight and bias are this rank's
  /// share, like all gradients.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& [x, weight, count, mean, inverse] =
        std::tie(saved[0], saved[1], saved[2], saved[3], saved[4]);
    const auto* over_ranks = reinterpret_cast<const SumOverRanks*>(context->saved_data["over_ranks"].toInt());
    const auto d = gradients[0].to(at::kFloat);
    const auto own_sum = d.sum(kAllButChannels);
    const auto own_product = (d * (x - ByChannel(mean))).sum(kAllButChannels);
    auto sums = at::cat({own_sum, own_product}).to(at::kDouble);
    over_ranks->sum(sums);
    // No rank's loss depends on what only stands in for images.
    if (!context->saved_data["counts"].toBool())
      return {at::zeros_like(x), at::zeros_like(mean), at::zeros_like(mean), {}, {}, {}, {}, {}};
    const auto means = (sums / count.clamp_min(1)).to(at::kFloat);
    // dL/dx = a * d + b * x + e, each a number for each channel.
    const auto a = weight * inverse;
    const auto b = -a * inverse * inverse * means.narrow(0, x.size(1), x.size(1));
    const auto e = -a * means.narrow(0, 0, x.size(1)) - b * mean;
    auto dx = at::addcmul(ByChannel(e), x, ByChannel(b)).addcmul_(d, ByChannel(a)).to(x.scalar_type());
    return {dx, own_product * inverse, own_sum, {}, {}, {}, {}, {}};
  }
};

/// By NormKernels, with what follows on it.
struct FusedNorm : public torch::autograd::Function<FusedNorm> {
  /// `normed` is what NormKernels made of the others.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& /*shortcut*/, const at::Tensor& weight,
                            const at::Tensor& bias, const NormKernels::Normed* normed, int64_t then,
                            double epsilon) {
    // Alone it can do without y, which what follows may change in place.
    const bool alone = then == static_cast<int64_t>(NormKernels::Then::kNothing);
    context->save_for_backward(
        {x, weight, bias, alone ? at::Tensor() : normed->y, normed->mean, normed->inverse, normed->reserved});
    context->saved_data["then"] = then;
    context->saved_data["epsilon"] = epsilon;
    return normed->y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    auto out =
        norm_kernels->Backward(static_cast<NormKernels::Then>(context->saved_data["then"].toInt()),
                               gradients[0].contiguous(at::MemoryFormat::ChannelsLast), saved[0],
                               {.y = saved[3], .mean = saved[4], .inverse = saved[5], .reserved = saved[6]},
                               saved[1], saved[2], context->saved_data["epsilon"].toDouble());
    return {out.x, out.shortcut, out.weight, out.bias, {}, {}, {}};
  }
};

}  // namespace

void UseNormKernels(NormKernels* kernels) { norm_kernels = kernels; }

std::optional<at::Tensor> BatchNormImpl::Fused(NormKernels::Then then, const at::Tensor& x,
                                               const at::Tensor& shortcut) {
  if (norm_kernels == nullptr || over_ranks_ || !is_training()) return std::nullopt;
  std::optional<NormKernels::Normed> normed;
  {
    torch::NoGradGuard no_grad;
    normed = norm_kernels->Forward(then, x, shortcut, weight, bias, running_mean, running_var,
                                   options.momentum().value(), options.eps());
    if (!normed) return std::nullopt;
    num_batches_tracked += 1;
  }
  return FusedNorm::apply(x, shortcut.defined() ? std::optional(shortcut) : std::nullopt, weight, bias,
                          &*normed, static_cast<int64_t>(then), options.eps());
}

at::Tensor BatchNormImpl::Relu(const at::Tensor& x) {
  if (auto fused = Fused(NormKernels::Then::kRelu, x, {})) return *fused;
  return forward(x).relu_();
}

at::Tensor BatchNormImpl::AddRelu(const at::Tensor& x, const at::Tensor& shortcut) {
  if (auto fused = Fused(NormKernels::Then::kAddRelu, x, shortcut)) return *fused;
  return forward(x).add_(shortcut).relu_();
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  if (auto fused = Fused(NormKernels::Then::kNothing, x, {})) return *fused;
  if (!over_ranks_ || !is_training()) return torch::nn::BatchNorm2dImpl::forward(x);
  Moments all;
  {
    torch::NoGradGuard no_grad;
    all = MomentsOfAll(x, *over_ranks_);
    num_batches_tracked += 1;
    // Where no rank has an image, the running statistics stay.
    const auto share = (all.count > 0).to(at::kFloat) * options.momentum().value();
    const auto unbiased = (all.count / (all.count - 1).clamp_min(1)).to(at::kFloat);
    running_mean.lerp_(all.mean, share);
    running_var.lerp_(all.variance * unbiased, share);
    // The others' statistics may fit a stand-in so badly that it overflows.
    if (!over_ranks_->has_images) {
      all.mean = running_mean.clone();
      all.variance = running_var.clone();
    }
  }
  return Normalise::apply(x, weight, bias, all.count, all.mean, all.variance, options.eps(),
                          over_ranks_.get());
}

}  // namespace imgd::trainer
