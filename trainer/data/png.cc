#include "trainer/data/png.h"

#include <png.h>

#include "trainer/data/jpeg.h"

namespace imgd::data {
namespace {

// libpng's "simplified API" catches its own longjmp and keeps the sentence.
struct Reader {
  png_image image{};
  Reader() { image.version = PNG_IMAGE_VERSION; }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_image_free(&image); }

  tl::unexpected<Error> Failure() const {
    return Fail(ErrorCode::kDataLoss, "the PNG file can't be decoded: {}", image.message);
  }
};

}  // namespace

Result<Pixels> DecodePng(std::span<const uint8_t> file) {
  Reader reader;
  if (png_image_begin_read_from_memory(&reader.image, file.data(), file.size()) == 0) return reader.Failure();
  const uint64_t bytes = uint64_t{reader.image.width} * reader.image.height * 4;
  if (bytes > JpegDecoder::kMaxBytes) {
    return Fail(ErrorCode::kDataLoss,
                "an image of {} x {} pixels needs {} MiB to decode; at most {} MiB are allowed",
                reader.image.width, reader.image.height, bytes >> 20, JpegDecoder::kMaxBytes >> 20);
  }
  reader.image.format = PNG_FORMAT_RGBA;
  Pixels pixels{.bytes = std::vector<uint8_t>(bytes),
                .width = static_cast<int>(reader.image.width),
                .height = static_cast<int>(reader.image.height)};
  if (png_image_finish_read(&reader.image, nullptr, pixels.bytes.data(), 0, nullptr) == 0 ||
      PNG_IMAGE_FAILED(reader.image)) {
    return reader.Failure();
  }
  return pixels;
}

}  // namespace imgd::data
