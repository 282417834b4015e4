#include "trainer/input/normalise.h"

namespace imgd::trainer {

Normaliser::Normaliser(const JobSpec::Normalisation& by) : by_(by), table_() {
  for (size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(by.mean[c]);
    const auto deviation = static_cast<float>(by.std[c]);
    for (size_t value = 0; value < 256; ++value)
      table_[c][value] = (static_cast<float>(value) / 255.0F - mean) / deviation;
  }
}

void Normaliser::operator()(std::span<const uint8_t> pixels, std::span<float> out) const {
  const auto& [red, green, blue] = table_;
  for (size_t i = 0; i + 2 < pixels.size(); i += 3) {
    out[i] = red[pixels[i]];
    out[i + 1] = green[pixels[i + 1]];
    out[i + 2] = blue[pixels[i + 2]];
  }
}

at::Tensor Normaliser::operator()(const at::Tensor& pixels) const {
  const auto options = at::dtype(at::kFloat).device(pixels.device());
  // Constants made on the device: a copy from pageable memory would wait for the stream.
  auto scale = at::empty({3}, options);
  auto shift = at::empty({3}, options);
  for (size_t c = 0; c < 3; ++c) {
    const auto channel = static_cast<int64_t>(c);
    scale[channel].fill_(1.0 / (255.0 * by_.std[c]));
    shift[channel].fill_(-by_.mean[c] / by_.std[c]);
  }
  return pixels.to(at::kFloat).mul_(scale).add_(shift).permute({0, 3, 1, 2});
}

at::Tensor PixelsOf(const at::Tensor& images, const JobSpec::Normalisation& by) {
  const auto on_cpu = images.to(at::kCPU, at::kFloat).permute({0, 2, 3, 1});
  const auto mean = at::tensor(at::ArrayRef<double>(by.mean)).to(at::kFloat);
  const auto deviation = at::tensor(at::ArrayRef<double>(by.std)).to(at::kFloat);
  return ((on_cpu * deviation + mean) * 255).round().clamp(0, 255).to(at::kByte).contiguous();
}

}  // namespace imgd::trainer
