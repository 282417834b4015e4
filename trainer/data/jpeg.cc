#include "trainer/data/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "trainer/data/huffman_scan.h"
#include "trainer/data/jpeg_errors.h"
#include "trainer/data/jpeg_markers.h"

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

// In place; a byte each of C, M, Y, K becomes R, G, B and one unused. Adobe's programs write CMYK inverted.
void CmykToRgb(uint8_t* pixels, size_t count, bool inverted) {
  for (uint8_t* p = pixels; p != pixels + count * 4; p += 4) {
    const int flip = inverted ? 0 : 255;
    const int black = p[3] ^ flip;
    for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(((p[c] ^ flip) * black + 127) / 255);
  }
}

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

  Result<JpegSize> Open(std::span<const uint8_t> file, RestartIndex restarts) {
    if (!created_) return Failure();
    IMGD_TRY(CheckMagic(file));
    file_ = file;
    restarts_ = restarts;
    IMGD_TRY(ReadHeader());
    // A crop near the top would not notice that the end is missing.
    if (!HasEndOfImage({cinfo_.src->next_input_byte, cinfo_.src->bytes_in_buffer})) {
      return Fail(ErrorCode::kDataLoss, "Premature end of JPEG file");
    }
    IMGD_TRY(CheckCoefficientMemory());
    return JpegSize{static_cast<int>(cinfo_.image_width), static_cast<int>(cinfo_.image_height)};
  }

  Result<DecodedPart> Decode(const Box& box, double margin, double scale) {
    SetScale(scale);
    const PixelRegion region = RegionOf(box, margin, scale, static_cast<int>(cinfo_.image_width),
                                        static_cast<int>(cinfo_.image_height));
    auto pixels = DecodeRegion(region, own_huffman_);
    // What is irregular is libjpeg's to judge.
    if (!pixels && irregular_) {
      IMGD_TRY(ReadHeader());
      SetScale(scale);
      pixels = DecodeRegion(region, false);
    }
    if (!pixels) return tl::unexpected<Error>(std::move(pixels).error());
    return DecodedPart{.pixels = *pixels,
                       .box = {box.left * scale - region.left, box.top * scale - region.top,
                               box.width * scale, box.height * scale}};
  }

  Result<JpegDoubts> Examine(std::span<const uint8_t> file) {
    errors_.ForgetWarnings();
    IMGD_ASSIGN(const JpegSize size, Open(file, {}));
    SetScale(1);
    bool good_end = false;
    const auto pixels = DecodeRegion({0, 0, size.width, size.height}, /*own_huffman=*/false, &good_end);
    if (!pixels) return tl::unexpected<Error>(pixels.error());
    JpegDoubts doubts{.damage = errors_.damage()};
    if (doubts.damage.empty()) doubts.warning = errors_.warning();
    if (doubts.damage.empty() && doubts.warning.empty() && !good_end) doubts.warning = errors_.message();
    return doubts;
  }

  // The smallest that leaves at least so many pixels of the box, if the image itself has as many.
  static double ChooseScale(const Box& box, int min_width, int min_height) {
    for (const double scale : {1.0 / 8, 1.0 / 4, 1.0 / 2}) {
      if (box.width * scale >= min_width && box.height * scale >= min_height) return scale;
    }
    return 1;
  }

  void UseLibjpegAlone() { own_huffman_ = false; }
  uint64_t left_to_libjpeg() const { return left_to_libjpeg_; }
  bool stores_rgb() const { return cinfo_.jpeg_color_space == JCS_RGB; }

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

  Status ReadHeader() {
    jpeg_abort_decompress(&cinfo_);
    const bool ok = errors_.Guard([this] {
      jpeg_mem_src(&cinfo_, file_.data(), file_.size());
      jpeg_read_header(&cinfo_, TRUE);
    });
    if (!ok) return Failure();
    return CheckColours();
  }

  void SetScale(double scale) {
    cinfo_.scale_num = static_cast<unsigned>(scale * 8);
    cinfo_.scale_denom = 8;
  }

  // `good_end`: of a region that is the whole; gets whether the rest of the file is as it should be.
  Result<ImageView> DecodeRegion(const PixelRegion& region, bool own_huffman, bool* good_end = nullptr) {
    JDIMENSION left = static_cast<JDIMENSION>(std::max(region.left - kColumnMargin, 0));
    irregular_ = false;
    if (!Start(region, left, own_huffman)) return Failure();
    const size_t pitch = (size_t{cinfo_.output_width} * 4 + kAlignment - 1) / kAlignment * kAlignment;
    const auto rows = static_cast<size_t>(region.bottom - region.top);
    const uint64_t bytes = uint64_t{pitch} * rows;
    IMGD_TRY(CheckMemory(bytes));
    if (pixels_.size() < bytes + 2 * kAlignment) pixels_.resize(bytes + 2 * kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(pixels_.data());
    uint8_t* const first = pixels_.data() + (kAlignment - address % kAlignment) + kMisalignment;
    const bool ok = errors_.Guard([this, &region, pitch, rows, first] {
      if (region.top > 0) jpeg_skip_scanlines(&cinfo_, static_cast<JDIMENSION>(region.top));
      for (size_t y = 0; y < rows; ++y) {
        uint8_t* row = first + y * pitch;
        jpeg_read_scanlines(&cinfo_, &row, 1);
      }
    });
    if (!ok) {
      irregular_ = own_huffman && std::string_view(errors_.message()) == HuffmanScan::kIrregular;
      return Failure();
    }
    const ImageView view{first + (static_cast<size_t>(region.left) - left) * 4, region.right - region.left,
                         region.bottom - region.top, pitch};
    if (cinfo_.out_color_space == JCS_CMYK) {
      for (size_t y = 0; y < rows; ++y) {
        CmykToRgb(first + y * pitch, size_t{cinfo_.output_width}, cinfo_.saw_Adobe_marker);
      }
    }
    if (good_end != nullptr) *good_end = errors_.Guard([this] { jpeg_finish_decompress(&cinfo_); });
    jpeg_abort_decompress(&cinfo_);
    return view;
  }

  // `left` becomes the first column that is decoded.
  bool Start(const PixelRegion& region, JDIMENSION& left, bool own_huffman) {
    return errors_.Guard([this, &region, &left, own_huffman] {
      jpeg_start_decompress(&cinfo_);
      JDIMENSION width =
          std::min(cinfo_.output_width, static_cast<JDIMENSION>(region.right + kColumnMargin)) - left;
      jpeg_crop_scanline(&cinfo_, &left, &width);
      const bool taken = own_huffman && huffman_.TakeOver(&cinfo_, errors_, restarts_);
      if (!taken) ++left_to_libjpeg_;
    });
  }

  // A pixel's width away from where libjpeg-turbo would take stores for aligned ones that go past the cache:
  // the pixels are read again at once.
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kMisalignment = 4;

  JpegErrors errors_;
  jpeg_decompress_struct cinfo_{};
  Progress progress_;
  bool created_ = false;
  bool own_huffman_ = true;
  bool irregular_ = false;  ///< the last decoding failed because of our own decoder
  HuffmanScan huffman_;
  uint64_t left_to_libjpeg_ = 0;
  std::span<const uint8_t> file_;
  RestartIndex restarts_;
  std::vector<uint8_t> pixels_;
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;

Result<JpegSize> JpegDecoder::Open(std::span<const uint8_t> file, RestartIndex restarts) {
  return impl_->Open(file, restarts);
}

Result<DecodedPart> JpegDecoder::Decode(const Box& box, double margin, int min_width, int min_height,
                                        DecodeMode mode) {
  const double scale = mode == DecodeMode::kFast ? Impl::ChooseScale(box, min_width, min_height) : 1;
  return impl_->Decode(box, margin, scale);
}

bool JpegDecoder::stores_rgb() const { return impl_->stores_rgb(); }

Result<JpegDoubts> JpegDecoder::Examine(std::span<const uint8_t> file) { return impl_->Examine(file); }

void JpegDecoder::UseLibjpegAlone() { impl_->UseLibjpegAlone(); }

uint64_t JpegDecoder::files_left_to_libjpeg() const { return impl_->left_to_libjpeg(); }

}  // namespace imgd::data
