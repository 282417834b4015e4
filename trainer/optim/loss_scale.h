#pragma once

#include <optional>

#include "trainer/torch.h"

namespace imgd::trainer {

/// Loss scaling for fp16, as torch.amp.GradScaler does it: the loss is multiplied, so that small gradients do
/// not vanish; a step whose gradients are not finite is left out and halves the scale, 2000 good ones in a
/// row double it. Every rank sees the same averaged gradients and so takes the same decision.
class LossScale {
 public:
  /// Off: Scale() and Unscale() do nothing.
  LossScale() = default;
  LossScale(at::Device device, double scale, int64_t streak);

  bool on() const { return scale_.defined(); }

  at::Tensor Scale(const at::Tensor& loss) const { return on() ? loss * scale_ : loss; }

  /// Divides the gradients by the scale and adapts it. What it returns is for Sgd::Step().
  std::optional<at::Tensor> Unscale(std::vector<at::Tensor> gradients);

  /// Read from the device, which waits for it. 0 when off.
  double scale() const { return on() ? scale_.item<float>() : 0; }
  int64_t streak() const { return on() ? streak_.item<int>() : 0; }

  /// Whether it has sunk so low that no scale seems to fit the gradients. Waits for the device.
  bool lost() const { return on() && scale() < kLeast; }

  static constexpr double kLeast = 1.0 / (1 << 14);
  static constexpr double kInitial = 65536;

 private:
  at::Tensor scale_;   ///< float
  at::Tensor streak_;  ///< int32, good steps since the scale last changed
};

}  // namespace imgd::trainer
