#include "trainer/data/jpeg_encode.h"

#include <cstdlib>

#include "trainer/data/jpeg_errors.h"

namespace imgd::data {
namespace {

J_COLOR_SPACE ColourSpaceOf(int components) {
  switch (components) {
    case 1:
      return JCS_GRAYSCALE;
    case 4:
      return JCS_CMYK;
    default:
      return JCS_RGB;
  }
}

// Owns what libjpeg needs for one image.
struct Encoder {
  JpegErrors errors{/*strict=*/false};
  jpeg_compress_struct cinfo{};
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's own type

  Encoder() { cinfo.err = errors.Install(); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&cinfo);
    std::free(buffer);  // NOLINT: jpeg_mem_dest allocates by malloc
  }

  void SetUp(int width, int height, const JpegEncodeOptions& options) {
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &buffer, &size);
    cinfo.image_width = static_cast<JDIMENSION>(width);
    cinfo.image_height = static_cast<JDIMENSION>(height);
    cinfo.input_components = options.components;
    cinfo.in_color_space = ColourSpaceOf(options.components);
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, options.quality, TRUE);
    if (options.components == 3) {
      cinfo.comp_info[0].h_samp_factor = options.chroma_sampling;
      cinfo.comp_info[0].v_samp_factor = options.chroma_sampling;
    }
    if (options.progressive) jpeg_simple_progression(&cinfo);
  }

  void Write(const uint8_t* pixels) {
    jpeg_start_compress(&cinfo, TRUE);
    const size_t stride = size_t{cinfo.image_width} * static_cast<size_t>(cinfo.input_components);
    while (cinfo.next_scanline < cinfo.image_height) {
      auto* row = const_cast<JSAMPLE*>(pixels + cinfo.next_scanline * stride);  // libjpeg only reads it
      jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
  }
};

}  // namespace

Result<std::string> EncodeJpeg(std::span<const uint8_t> pixels, int width, int height,
                               const JpegEncodeOptions& options) {
  Encoder encoder;
  const bool ok = encoder.errors.Guard([&] {
    encoder.SetUp(width, height, options);
    encoder.Write(pixels.data());
  });
  if (!ok) return Fail(ErrorCode::kInvalidArgument, "cannot code a JPEG: {}", encoder.errors.message());
  return std::string(reinterpret_cast<const char*>(encoder.buffer), encoder.size);
}

}  // namespace imgd::data
