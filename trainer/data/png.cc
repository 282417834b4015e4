#include "trainer/data/png.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "trainer/data/jpeg.h"

namespace imgd::data {
namespace {

constexpr size_t kPngMessageBytes = 200;

/// libpng's reader that neither prints nor exits: Guard() returns false and message() says why. Not libpng's
/// "simplified API", which takes 16 bits for linear light and applies gAMA: PIL, and so what models are
/// trained and validated with, does neither.
class PngReader {
 public:
  explicit PngReader(std::span<const uint8_t> file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::OnError, &PngReader::OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ != nullptr) png_set_read_fn(png_, this, &PngReader::OnRead);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Makes every kind of PNG one of four bytes a pixel: R, G, B and one more.
  bool ReadHeader() {
    return info_ != nullptr && Guard([this] {
             png_read_info(png_, info_);
             png_set_expand(png_);  // palettes, fewer than 8 bits, a transparent colour
             png_set_strip_16(png_);
             png_set_gray_to_rgb(png_);
             png_set_filler(png_, 0xFF, PNG_FILLER_AFTER);
             png_set_interlace_handling(png_);
             png_read_update_info(png_, info_);
           });
  }

  /// `rows`: where each of the image's begins.
  bool ReadRows(uint8_t** rows) {
    return Guard([this, rows] { png_read_image(png_, rows); });
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }
  uint64_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  tl::unexpected<Error> Failure() const {
    return Fail(ErrorCode::kDataLoss, "the PNG file can't be decoded: {}", message_);
  }

 private:
  /// f must not make anything with a destructor: longjmp leaves it without unwinding.
  template <typename F>
  bool Guard(F f) {
    static_assert(std::is_trivially_destructible_v<F>);
    if (setjmp(landing_) != 0) return false;
    f();
    return true;
  }

  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof(self->message_), "%s", message);
    std::longjmp(self->landing_, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep out, size_t size) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->file_.size()) png_error(png, "the file ends too early");
    std::memcpy(out, self->file_.data(), size);
    self->file_ = self->file_.subspan(size);
  }

  std::span<const uint8_t> file_;  ///< what was not read yet
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf landing_{};
  char message_[kPngMessageBytes] = "out of memory";
};

}  // namespace

Result<Pixels> DecodePng(std::span<const uint8_t> file) {
  PngReader reader(file);
  if (!reader.ReadHeader()) return reader.Failure();
  const uint64_t pitch = uint64_t{reader.width()} * 4;
  const uint64_t bytes = pitch * reader.height();
  if (bytes > JpegDecoder::kMaxBytes) {
    return Fail(ErrorCode::kDataLoss,
                "an image of {} x {} pixels needs {} MiB to decode; at most {} MiB are allowed",
                reader.width(), reader.height(), bytes >> 20, JpegDecoder::kMaxBytes >> 20);
  }
  if (reader.row_bytes() != pitch)
    return Fail(ErrorCode::kDataLoss, "the PNG file can't be decoded: rows of {} bytes for {} pixels",
                reader.row_bytes(), reader.width());
  Pixels pixels{.bytes = std::vector<uint8_t>(bytes),
                .width = static_cast<int>(reader.width()),
                .height = static_cast<int>(reader.height())};
  std::vector<uint8_t*> rows;
  for (uint32_t y = 0; y < reader.height(); ++y) rows.push_back(pixels.bytes.data() + y * pitch);
  if (!reader.ReadRows(rows.data())) return reader.Failure();
  return pixels;
}

Result<std::string> EncodePng(std::span<const uint8_t> rgb, int width, int height) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  std::string out(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = out.size();
  if (png_image_write_to_memory(&image, out.data(), &size, 0, rgb.data(), 0, nullptr) == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no PNG file can be made: {}", image.message);
  }
  out.resize(size);
  return out;
}

}  // namespace imgd::data
