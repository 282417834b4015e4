#include "trainer/data/image_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "trainer/data/jpeg_markers.h"

namespace imgd::data {
namespace {

using ByteSpan = std::span<const uint8_t>;
using QuantTable = std::array<uint16_t, 64>;

/// T.81's example table for brightness (K.1), row after row: what libjpeg scales by its quality.
constexpr std::array<uint8_t, 64> kBrightness = {
    16, 11,  10,  16, 24, 40, 51, 61, 12,  12,  14,  19,  26, 58, 60, 55,  14,  13,  16,  24, 40, 57,
    69, 56,  14,  17, 22, 29, 51, 87, 80,  62,  18,  22,  37, 56, 68, 109, 103, 77,  24,  35, 55, 64,
    81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98,  112, 100, 103, 99};

/// Where the coefficients of a file's table, which is in zigzag order, stand in rows.
constexpr std::array<uint8_t, 64> kInRows = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                             12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                             35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                             58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/// libjpeg's jpeg_quality_scaling and jpeg_add_quant_table, held to 8 bits.
int ScaledEntry(int base, int quality) {
  const int scale = quality < 50 ? 5000 / quality : 200 - quality * 2;
  return std::clamp((base * scale + 50) / 100, 1, 255);
}

int QualityOf(const QuantTable& table) {
  int best = 1;
  long best_difference = -1;
  for (int quality = 1; quality <= 100; ++quality) {
    long difference = 0;
    for (size_t i = 0; i < 64; ++i)
      difference += std::labs(table[i] - long{ScaledEntry(kBrightness[kInRows[i]], quality)});
    if (best_difference >= 0 && difference > best_difference) continue;
    best = quality;
    best_difference = difference;
  }
  return best;
}

/// The segments before the first scan.
struct JpegHeader {
  std::array<std::optional<QuantTable>, 4> tables;
  ByteSpan frame;  ///< content of the start-of-frame segment
  uint8_t frame_marker = 0;
  bool jfif = false;
  int adobe = -1;  ///< Adobe's colour transform, -1 without its segment
  uint32_t restart_interval = 0;
};

void TakeTables(ByteSpan segment, JpegHeader& header) {
  while (!segment.empty()) {
    const size_t entry = segment[0] >> 4 == 0 ? 1 : 2;
    const size_t id = segment[0] & 0x0F;
    if (segment.size() < 1 + 64 * entry || id >= header.tables.size()) return;
    QuantTable table{};
    for (size_t i = 0; i < 64; ++i)
      table[i] = static_cast<uint16_t>(entry == 1 ? segment[1 + i] : Big16(segment, 1 + 2 * i));
    header.tables[id] = table;
    segment = segment.subspan(1 + 64 * entry);
  }
}

void TakeSegment(uint8_t marker, ByteSpan segment, JpegHeader& header) {
  using namespace jpeg_marker;
  const std::string_view text(reinterpret_cast<const char*>(segment.data()), segment.size());
  if (IsStartOfFrame(marker) && header.frame.empty()) {
    header.frame = segment;
    header.frame_marker = marker;
  } else if (marker == kQuantisation) {
    TakeTables(segment, header);
  } else if (marker == kRestartInterval && segment.size() >= 2) {
    header.restart_interval = Big16(segment, 0);
  } else if (marker == kApp0 && text.starts_with(std::string_view("JFIF\0", 5))) {
    header.jfif = true;
  } else if (marker == kApp14 && text.starts_with("Adobe") && segment.size() >= 12) {
    header.adobe = segment[11];
  }
}

/// Whether a scan was reached.
bool ReadSegments(ByteSpan file, JpegHeader& header) {
  JpegSegments segments(file);
  while (const auto segment = segments.Next()) {
    TakeSegment(segment->marker, segment->content, header);
    if (segment->marker == jpeg_marker::kStartOfScan) return true;
  }
  return false;
}

/// As libjpeg's default_decompress_parms takes them.
ImageFacts::Colours ColoursOf(const JpegHeader& header, size_t components) {
  using enum ImageFacts::Colours;
  if (components == 1) return kGrey;
  if (components == 4) return header.adobe == 2 ? kYcck : kCmyk;
  if (components != 3) return kUnknown;
  if (header.jfif) return kYcc;
  if (header.adobe >= 0) return header.adobe == 0 ? kRgb : kYcc;
  const std::array<uint8_t, 3> ids = {header.frame[6], header.frame[9], header.frame[12]};
  return ids == std::array<uint8_t, 3>{'R', 'G', 'B'} ? kRgb : kYcc;
}

std::string SubsamplingOf(ByteSpan frame, size_t components) {
  if (components < 3) return "";
  std::string factors;
  for (size_t c = 0; c < components; ++c)
    factors += fmt::format("{}{}x{}", c == 0 ? "" : ",", frame[7 + 3 * c] >> 4, frame[7 + 3 * c] & 15);
  if (factors == "1x1,1x1,1x1") return "4:4:4";
  if (factors == "2x1,1x1,1x1") return "4:2:2";
  if (factors == "2x2,1x1,1x1") return "4:2:0";
  if (factors == "1x2,1x1,1x1") return "4:4:0";
  if (factors == "4x1,1x1,1x1") return "4:1:1";
  return factors;
}

ImageFacts LookAtJpeg(ByteSpan file) {
  ImageFacts facts{.format = ImageFacts::Format::kJpeg};
  JpegHeader header;
  if (!ReadSegments(file, header) || header.frame.size() < 6) return facts;
  const size_t components = header.frame[5];
  if (components == 0 || components > 4 || header.frame.size() < 6 + 3 * components) return facts;
  facts.height = Big16(header.frame, 1);
  facts.width = Big16(header.frame, 3);
  facts.colours = ColoursOf(header, components);
  facts.progressive = (header.frame_marker & 3) == 2;
  facts.arithmetic = header.frame_marker >= 0xC9;
  facts.restart_interval = header.restart_interval;
  facts.subsampling = SubsamplingOf(header.frame, components);
  const size_t table = header.frame[8];
  if (table < header.tables.size() && header.tables[table]) facts.quality = QualityOf(*header.tables[table]);
  return facts;
}

}  // namespace

ImageFacts LookAtImage(std::span<const uint8_t> file) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 16));
  if (start.starts_with("\xFF\xD8\xFF")) return LookAtJpeg(file);
  ImageFacts facts;
  if (!start.starts_with("\x89PNG\r\n\x1A\n")) return facts;
  facts.format = ImageFacts::Format::kPng;
  if (file.size() < 24 || !start.ends_with("IHDR")) return facts;
  facts.width = Big32(file, 16);
  facts.height = Big32(file, 20);
  return facts;
}

const char* NameOf(ImageFacts::Format format) {
  constexpr std::array<const char*, 3> kNames = {"unknown", "JPEG", "PNG"};
  return kNames[static_cast<size_t>(format)];
}

const char* NameOf(ImageFacts::Colours colours) {
  constexpr std::array<const char*, 6> kNames = {"unknown", "grey", "YCbCr", "RGB", "CMYK", "YCCK"};
  return kNames[static_cast<size_t>(colours)];
}

}  // namespace imgd::data
