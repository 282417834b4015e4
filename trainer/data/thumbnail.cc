#include "trainer/data/thumbnail.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "trainer/data/jpeg_encode.h"

namespace imgd::data {

Result<std::string> Thumbnails::Make(const Dataset& set, size_t image) {
  IMGD_TRY(set.Read(image, file_));
  IMGD_ASSIGN(const JpegSize size, decoder_.Open(file_.bytes(), set.restarts(image)));
  const double scale = std::min(1.0, static_cast<double>(kMostSide) / std::max(size.width, size.height));
  const int width = std::max(1, static_cast<int>(std::lround(size.width * scale)));
  const int height = std::max(1, static_cast<int>(std::lround(size.height * scale)));
  const Box all{.width = static_cast<double>(size.width), .height = static_cast<double>(size.height)};
  IMGD_ASSIGN(const DecodedPart part, decoder_.Decode(all, 0, width, height, DecodeMode::kFast));
  std::vector<uint8_t> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  resizer_.Resize(part.pixels, part.box, width, height, false, pixels.data());
  for (const int quality : {80, 60, 40, 20, 5}) {
    IMGD_ASSIGN(std::string jpeg, EncodeJpeg(pixels, width, height, {.quality = quality}));
    if (jpeg.size() <= kMostBytes) return jpeg;
  }
  return Fail(ErrorCode::kResourceExhausted, "no thumbnail of {} has less than {} bytes", set.name(image),
              kMostBytes);
}

}  // namespace imgd::data
