#include "trainer/input/normalise.h"

#include <array>

namespace imgd::trainer {
namespace {

using Table = std::array<std::array<float, 256>, 3>;

Table MakeTable() {
  Table table{};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t value = 0; value < 256; ++value) {
      table[c][value] = (static_cast<float>(value) / 255.0F - kImageMean[c]) / kImageStd[c];
    }
  }
  return table;
}

}  // namespace

void Normalise(std::span<const uint8_t> pixels, std::span<float> out) {
  static const Table kTable = MakeTable();
  const auto& [red, green, blue] = kTable;
  for (size_t i = 0; i + 2 < pixels.size(); i += 3) {
    out[i] = red[pixels[i]];
    out[i + 1] = green[pixels[i + 1]];
    out[i + 2] = blue[pixels[i + 2]];
  }
}

at::Tensor Normalise(const at::Tensor& pixels) {
  const auto options = at::dtype(at::kFloat).device(pixels.device());
  // Constants made on the device: a copy from pageable memory would wait for the stream.
  auto scale = at::empty({3}, options);
  auto shift = at::empty({3}, options);
  for (int64_t c = 0; c < 3; ++c) {
    scale[c].fill_(1.0 / (255.0 * kImageStd[c]));
    shift[c].fill_(-kImageMean[c] / kImageStd[c]);
  }
  return pixels.to(at::kFloat).mul_(scale).add_(shift).permute({0, 3, 1, 2});
}

}  // namespace imgd::trainer
