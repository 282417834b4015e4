#include "trainer/data/restart_index.h"

#include <algorithm>
#include <cstdlib>

#include "trainer/data/jpeg_errors.h"
#include "trainer/data/jpeg_markers.h"

namespace imgd::data {
namespace {

constexpr unsigned kLeastIntervalPixels = 64;  // across
constexpr uint64_t kMaxCoefficientBytes = uint64_t{512} << 20;

void PutVarint(std::string& out, uint32_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

/// MCUs of an interval.
unsigned IntervalOf(unsigned mcus_in_row, unsigned mcu_width) {
  for (unsigned n = 1; n < mcus_in_row; ++n) {
    if (mcus_in_row % n == 0 && n * mcu_width >= kLeastIntervalPixels) return n;
  }
  return mcus_in_row;
}

/// libjpeg's two sides of a change that leaves the coefficients.
class Transcoder {
 public:
  Transcoder() {
    source_.err = errors_.Install();
    target_.err = source_.err;
  }
  ~Transcoder() {
    jpeg_destroy_compress(&target_);
    jpeg_destroy_decompress(&source_);
    std::free(buffer_);  // NOLINT: jpeg_mem_dest allocates by malloc
  }
  Transcoder(const Transcoder&) = delete;
  Transcoder& operator=(const Transcoder&) = delete;

  Result<RestartMarked> Run(std::span<const uint8_t> file) {
    RestartMarked result{.file = std::string(reinterpret_cast<const char*>(file.data()), file.size())};
    if (!errors_.Guard([this, file] { ReadHeader(file); })) return Failure();
    if (!IsKnown()) return result;
    if (!errors_.Guard([this] { coefficients_ = jpeg_read_coefficients(&source_); })) return Failure();
    // Anything that libjpeg had to make up for could come out otherwise.
    if (source_.err->num_warnings > 0 || !IsComplete()) return result;
    if (!errors_.Guard([this] { Write(); })) return Failure();
    result.changed = true;
    result.file.assign(reinterpret_cast<const char*>(buffer_), size_);
    result.index = IndexOf({buffer_, size_});
    return result;
  }

 private:
  tl::unexpected<Error> Failure() const { return Fail(ErrorCode::kDataLoss, "{}", errors_.message()); }

  void ReadHeader(std::span<const uint8_t> file) {
    jpeg_create_decompress(&source_);
    jpeg_create_compress(&target_);
    jpeg_mem_src(&source_, file.data(), file.size());
    jpeg_save_markers(&source_, JPEG_COM, 0xFFFF);
    for (int i = 0; i < 16; ++i) jpeg_save_markers(&source_, JPEG_APP0 + i, 0xFFFF);
    jpeg_read_header(&source_, TRUE);
  }

  bool IsKnown() const {
    uint64_t bytes = 0;
    for (int i = 0; i < source_.num_components; ++i) {
      const jpeg_component_info& component = source_.comp_info[i];
      bytes += uint64_t{component.width_in_blocks} * component.height_in_blocks * sizeof(JBLOCK);
    }
    return source_.jpeg_color_space != JCS_UNKNOWN && source_.data_precision == 8 &&
           bytes <= kMaxCoefficientBytes;
  }

  /// libjpeg smooths a progressive picture of which not all is there.
  bool IsComplete() const {
    if (!source_.progressive_mode) return true;
    if (source_.coef_bits == nullptr) return false;
    for (int i = 0; i < source_.num_components; ++i) {
      if (std::any_of(source_.coef_bits[i], source_.coef_bits[i] + DCTSIZE2, [](int b) { return b != 0; }))
        return false;
    }
    return true;
  }

  void Write() {
    jpeg_mem_dest(&target_, &buffer_, &size_);
    jpeg_copy_critical_parameters(&source_, &target_);
    target_.optimize_coding = TRUE;
    target_.write_JFIF_header = FALSE;  // it is among the markers that were kept
    target_.write_Adobe_marker = FALSE;
    const bool interleaved = source_.num_components > 1;
    const auto mcu_width = static_cast<unsigned>(DCTSIZE * (interleaved ? source_.max_h_samp_factor : 1));
    target_.restart_interval = IntervalOf((source_.image_width + mcu_width - 1) / mcu_width, mcu_width);
    jpeg_write_coefficients(&target_, coefficients_);
    for (const auto* marker = source_.marker_list; marker != nullptr; marker = marker->next)
      jpeg_write_marker(&target_, marker->marker, marker->data, marker->data_length);
    jpeg_finish_compress(&target_);
  }

  static std::string IndexOf(std::span<const uint8_t> file) {
    const auto scan = FirstScan(file);
    std::string index;
    const uint8_t* start = scan.data();
    const uint8_t* const end = start + scan.size();
    for (;;) {
      const uint8_t* marker = FindMarker(start, end);
      if (end - marker < 2 || marker[1] < JPEG_RST0 || marker[1] > JPEG_RST0 + 7) return index;
      PutVarint(index, static_cast<uint32_t>(marker + 2 - start));
      start = marker + 2;
    }
  }

  JpegErrors errors_{/*strict=*/true};
  jpeg_decompress_struct source_{};
  jpeg_compress_struct target_{};
  jvirt_barray_ptr* coefficients_ = nullptr;
  unsigned char* buffer_ = nullptr;
  unsigned long size_ = 0;  // NOLINT(google-runtime-int): libjpeg's own type
};

}  // namespace

std::optional<uint32_t> TakeVarint(std::span<const uint8_t>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 5; ++i) {
    value |= static_cast<uint64_t>(bytes[i] & 127) << (7 * i);
    if (bytes[i] >= 128) continue;
    if (value > UINT32_MAX) return std::nullopt;
    bytes = bytes.subspan(i + 1);
    return static_cast<uint32_t>(value);
  }
  return std::nullopt;
}

bool IsRestartIndex(RestartIndex index, uint64_t file_bytes) {
  uint64_t end = 0;
  while (!index.empty()) {
    const auto length = TakeVarint(index);
    if (!length || *length < 2) return false;
    end += *length;
    if (end > file_bytes) return false;
  }
  return true;
}

Result<RestartMarked> AddRestartMarkers(std::span<const uint8_t> file) { return Transcoder().Run(file); }

}  // namespace imgd::data
