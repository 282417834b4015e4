#pragma once

#include <cstdint>
#include <span>

#include "trainer/torch.h"

namespace imgd::trainer {

/// ImageNet's mean and standard deviation of each channel, of values from 0 to 1: what torchvision's models
/// expect.
inline constexpr float kImageMean[3] = {0.485F, 0.456F, 0.406F};
inline constexpr float kImageStd[3] = {0.229F, 0.224F, 0.225F};

/// (value / 255 - mean) / std of `pixels`, [N, H, W, 3] RGB, into `out`, of the same length and order.
void Normalise(std::span<const uint8_t> pixels, std::span<float> out);

/// The same on the tensor's device: [N, H, W, 3] bytes to [N, 3, H, W] floats, channels_last.
at::Tensor Normalise(const at::Tensor& pixels);

}  // namespace imgd::trainer
