// JPEG files: crops that the input's last bytes choose, of one decoder that is used again.
#include "trainer/data/jpeg.h"

#include <fuzzer/FuzzedDataProvider.h>

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

namespace {

/// Larger pictures only cost time.
constexpr int64_t kMostPixels = 1 << 18;

void DecodeOne(JpegDecoder& decoder, std::span<const uint8_t> file, const Box& share, int least) {
  const auto size = decoder.Open(file);
  if (!size) return;
  Require(size->width > 0 && size->height > 0);
  if (int64_t{size->width} * size->height > kMostPixels) return;
  const Box box = {share.left * size->width, share.top * size->height, share.width * size->width,
                   share.height * size->height};
  const auto part = decoder.Decode(box, 1, least, least);
  if (!part) return;
  unsigned sum = 0;
  for (int y = 0; y < part->pixels.height; ++y) {
    for (int x = 0; x < part->pixels.width * 4; ++x) sum += part->pixels.row(y)[x];
  }
  Require(sum != 1U << 31 || part->box.width >= 0);  // keeps the reading of every byte
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  Box crop;
  crop.left = input.ConsumeIntegralInRange<int>(0, 99) / 100.0;
  crop.top = input.ConsumeIntegralInRange<int>(0, 99) / 100.0;
  crop.width = input.ConsumeIntegralInRange<int>(1, 100) / 100.0 * (1 - crop.left);
  crop.height = input.ConsumeIntegralInRange<int>(1, 100) / 100.0 * (1 - crop.top);
  const int least = input.ConsumeIntegralInRange<int>(1, 64);
  const auto file = input.ConsumeRemainingBytes<uint8_t>();
  JpegDecoder decoder;
  DecodeOne(decoder, file, crop, least);
  DecodeOne(decoder, file, {0, 0, 1, 1}, 1);
  return 0;
}
