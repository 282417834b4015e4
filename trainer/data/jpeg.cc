#include "trainer/data/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "trainer/data/jpeg_errors.h"

namespace imgd::data {
namespace {

// A progressive file can claim any number of passes over the whole image.
constexpr int kMaxScans = 500;
// Colour at the edge of a decoded column differs from that within, because the upsampling filter lacks its
// neighbour; so much more is decoded and not used.
constexpr int kColumnMargin = 2;

Status CheckMagic(std::span<const uint8_t> file) {
  if (file.empty()) return Fail(ErrorCode::kDataLoss, "the file is empty");
  const std::string_view start(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 12));
  if (start.starts_with("\xFF\xD8\xFF")) return {};
  struct Kind {
    std::string_view magic;
    const char* name;
  };
  static constexpr std::array<Kind, 6> kKinds = {{{"\x89PNG", "a PNG"},
                                                  {"GIF8", "a GIF"},
                                                  {"BM", "a BMP"},
                                                  {"RIFF", "a WebP"},
                                                  {"II*", "a TIFF"},
                                                  {"MM", "a TIFF"}}};
  for (const auto& kind : kKinds) {
    if (start.starts_with(kind.magic)) {
      return Fail(ErrorCode::kDataLoss, "not a JPEG file: it starts like {} file", kind.name);
    }
  }
  return Fail(
      ErrorCode::kDataLoss, "not a JPEG file: it starts with bytes {:02x} instead of ff d8 ff",
      fmt::join(file.begin(), file.begin() + static_cast<ptrdiff_t>(std::min<size_t>(file.size(), 3)), " "));
}

// Whether the coded image, which starts at `data`, has an end. A crop near the top would not notice.
bool HasEnd(std::span<const uint8_t> data) {
  for (size_t i = data.size(); i >= 2; --i) {
    if (data[i - 2] == 0xFF && data[i - 1] == JPEG_EOI) return true;
  }
  return false;
}

// In place; a byte each of C, M, Y, K becomes R, G, B and one unused. Adobe's programs write CMYK inverted.
void CmykToRgb(uint8_t* pixels, size_t count, bool inverted) {
  for (uint8_t* p = pixels; p != pixels + count * 4; p += 4) {
    const int flip = inverted ? 0 : 255;
    const int black = p[3] ^ flip;
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(((p[c] ^ flip) * black + 127) / 255);
  }
}

// Rows and columns of the scaled image.
struct Region {
  int left, top, right, bottom;
};

}  // namespace

class JpegDecoder::Impl {
 public:
  Impl() : errors_(/*strict=*/true) {
    cinfo_.err = errors_.Install();
    created_ = errors_.Guard([this] { jpeg_create_decompress(&cinfo_); });
    progress_.manager.progress_monitor = &Impl::OnProgress;
    progress_.self = this;
    cinfo_.progress = &progress_.manager;
  }
  ~Impl() { jpeg_destroy_decompress(&cinfo_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<JpegSize> Open(std::span<const uint8_t> file) {
    if (!created_) return Failure();
    IMGD_TRY(CheckMagic(file));
    jpeg_abort_decompress(&cinfo_);
    const bool ok = errors_.Guard([this, file] {
      jpeg_mem_src(&cinfo_, file.data(), file.size());
      jpeg_read_header(&cinfo_, TRUE);
    });
    if (!ok) return Failure();
    if (!HasEnd({cinfo_.src->next_input_byte, cinfo_.src->bytes_in_buffer})) {
      return Fail(ErrorCode::kDataLoss, "Premature end of JPEG file");
    }
    IMGD_TRY(CheckColours());
    IMGD_TRY(CheckCoefficientMemory());
    return JpegSize{static_cast<int>(cinfo_.image_width), static_cast<int>(cinfo_.image_height)};
  }

  Result<DecodedPart> Decode(const Box& box, double margin, int min_width, int min_height) {
    ChooseScale(box, min_width, min_height);
    if (!errors_.Guard([this] { jpeg_start_decompress(&cinfo_); })) return Failure();
    const double scale = static_cast<double>(cinfo_.scale_num) / cinfo_.scale_denom;
    const Region region = RegionOf(box, margin, scale);
    IMGD_TRY(DecodeRegion(region));
    return DecodedPart{.pixels = {pixels_.data(), region.right - region.left, region.bottom - region.top},
                       .box = {box.left * scale - region.left, box.top * scale - region.top,
                               box.width * scale, box.height * scale}};
  }

 private:
  struct Progress {
    jpeg_progress_mgr manager{};
    Impl* self = nullptr;
  };

  static void OnProgress(j_common_ptr object) {
    const auto* cinfo = reinterpret_cast<j_decompress_ptr>(object);
    auto* progress = reinterpret_cast<Progress*>(object->progress);
    if (cinfo->input_scan_number > kMaxScans) progress->self->errors_.GiveUp("Too many scans in JPEG file");
  }

  tl::unexpected<Error> Failure() const { return Fail(ErrorCode::kDataLoss, "{}", errors_.message()); }

  Status CheckColours() {
    switch (cinfo_.jpeg_color_space) {
      case JCS_CMYK:
      case JCS_YCCK:
        cinfo_.out_color_space = JCS_CMYK;
        return {};
      case JCS_GRAYSCALE:
      case JCS_YCbCr:
      case JCS_RGB:
        cinfo_.out_color_space = JCS_EXT_RGBX;
        return {};
      default:
        return Fail(ErrorCode::kDataLoss, "JPEG file with {} colour components, where 1, 3 or 4 are known",
                    cinfo_.num_components);
    }
  }

  // libjpeg keeps all coefficients of a file that has several scans.
  Status CheckCoefficientMemory() {
    if (!jpeg_has_multiple_scans(&cinfo_)) return {};
    uint64_t bytes = 0;
    for (int i = 0; i < cinfo_.num_components; ++i) {
      const jpeg_component_info& component = cinfo_.comp_info[i];
      bytes += uint64_t{component.width_in_blocks} * component.height_in_blocks * sizeof(JBLOCK);
    }
    return CheckMemory(bytes);
  }

  Status CheckMemory(uint64_t bytes) const {
    if (bytes <= kMaxBytes) return {};
    return Fail(ErrorCode::kDataLoss,
                "an image of {} x {} pixels needs {} MiB to decode; at most {} MiB are allowed",
                cinfo_.image_width, cinfo_.image_height, bytes >> 20, kMaxBytes >> 20);
  }

  void ChooseScale(const Box& box, int min_width, int min_height) {
    cinfo_.scale_denom = 8;
    cinfo_.scale_num = 8;
    for (const unsigned candidate : kScales) {
      const double scale = candidate / 8.0;
      if (box.width * scale >= min_width && box.height * scale >= min_height) {
        cinfo_.scale_num = candidate;
        return;
      }
    }
  }

  Region RegionOf(const Box& box, double margin, double scale) const {
    const auto width = static_cast<double>(cinfo_.output_width);
    const auto height = static_cast<double>(cinfo_.output_height);
    // A product that should be a whole number may be off by a rounding error.
    constexpr double kSlack = 1e-6;
    const auto low = [&](double edge, double size) {
      return static_cast<int>(std::clamp(std::floor((edge - margin) * scale + kSlack), 0.0, size - 1));
    };
    const auto high = [&](double edge, double size) {
      return static_cast<int>(std::clamp(std::ceil((edge + margin) * scale - kSlack), 1.0, size));
    };
    return {low(box.left, width), low(box.top, height), high(box.left + box.width, width),
            high(box.top + box.height, height)};
  }

  // Reads the rows of the region into pixels_, moved left so that no column before it remains.
  Status DecodeRegion(const Region& region) {
    JDIMENSION left = static_cast<JDIMENSION>(std::max(region.left - kColumnMargin, 0));
    JDIMENSION width =
        std::min(cinfo_.output_width, static_cast<JDIMENSION>(region.right + kColumnMargin)) - left;
    if (!errors_.Guard([this, &left, &width] { jpeg_crop_scanline(&cinfo_, &left, &width); }))
      return Failure();
    const auto used = static_cast<size_t>(region.right - region.left) * 4;
    const auto rows = static_cast<size_t>(region.bottom - region.top);
    IMGD_TRY(CheckMemory(used * rows));
    if (pixels_.size() < used * rows) pixels_.resize(used * rows);
    row_.resize(size_t{cinfo_.output_width} * 4);
    const size_t skip = (static_cast<size_t>(region.left) - left) * 4;
    const bool ok = errors_.Guard([this, &region, used, rows, skip] {
      if (region.top > 0) jpeg_skip_scanlines(&cinfo_, static_cast<JDIMENSION>(region.top));
      for (size_t y = 0; y < rows; ++y) {
        uint8_t* row = row_.data();
        jpeg_read_scanlines(&cinfo_, &row, 1);
        std::copy_n(row + skip, used, pixels_.data() + y * used);
      }
    });
    if (!ok) return Failure();
    if (cinfo_.out_color_space == JCS_CMYK) {
      CmykToRgb(pixels_.data(), used / 4 * rows, cinfo_.saw_Adobe_marker);
    }
    jpeg_abort_decompress(&cinfo_);
    return {};
  }

  static constexpr std::array<unsigned, 4> kScales = {1, 2, 4, 8};

  JpegErrors errors_;
  jpeg_decompress_struct cinfo_{};
  Progress progress_;
  bool created_ = false;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> row_;
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;

Result<JpegSize> JpegDecoder::Open(std::span<const uint8_t> file) { return impl_->Open(file); }

Result<DecodedPart> JpegDecoder::Decode(const Box& box, double margin, int min_width, int min_height) {
  return impl_->Decode(box, margin, min_width, min_height);
}

}  // namespace imgd::data
