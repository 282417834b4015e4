#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/torch.h"
//
#include "common/job_file.h"

namespace imgd::trainer {

/// Makes what a model sees of pixels: (value / 255 - mean) / std of each channel. For any thread.
class Normaliser {
 public:
  explicit Normaliser(const JobSpec::Normalisation& by);

  /// Of `pixels`, [N, H, W, 3] RGB, into `out`, of the same length and order.
  void operator()(std::span<const uint8_t> pixels, std::span<float> out) const;
  /// The same on the tensor's device: [N, H, W, 3] bytes to [N, 3, H, W] floats, channels_last.
  at::Tensor operator()(const at::Tensor& pixels) const;

 private:
  JobSpec::Normalisation by_;
  std::array<std::array<float, 256>, 3> table_;
};

/// The opposite: uint8 [N, H, W, 3] on the CPU.
at::Tensor PixelsOf(const at::Tensor& images, const JobSpec::Normalisation& by);

}  // namespace imgd::trainer
