// Images of any kind as a conversion prepares them: looked at, repaired, made smaller, given restart markers.
#include "trainer/data/repair.h"

#include <zlib.h>

#include <algorithm>

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

namespace {

/// Larger pictures only cost time.
constexpr uint64_t kMostPixels = 1 << 16;
constexpr int kSmall = 16;

void Prepare(std::span<const uint8_t> file, const ImageRules& rules) {
  ImagePreparer preparer(rules);
  const auto image = preparer.Prepare(file);
  if (!image.keep) {
    Require(rules.repair && !image.detail.empty());
    return;
  }
  if (!rules.repair) {
    Require(image.file.data() == file.data() && image.file.size() == file.size());
    return;
  }
  JpegDecoder decoder;
  const auto size = decoder.Open(image.file, AsBytes(image.restarts));
  Require(size.has_value());
  Require(std::cmp_equal(size->width, image.facts.width) && std::cmp_equal(size->height, image.facts.height));
  Require(rules.resize == 0 || std::min(size->width, size->height) <= rules.resize);
  Require(decoder.Decode({0, 0, size->width * 1.0, size->height * 1.0}, 0, 1, 1).has_value());
}

void PrepareAll(std::span<const uint8_t> file) {
  const FileKind facts = LookAtFile(file);
  const uint64_t pixels = uint64_t{facts.width} * facts.height;
  const bool refused = facts.kind == FileKind::Kind::kPng && pixels * 4 > JpegDecoder::kMaxBytes;
  if (pixels > kMostPixels && !refused) return;
  Prepare(file, {});
  Prepare(file, {.resize = kSmall, .quality = 50, .restart = true});
  Prepare(file, {.repair = false});
}

/// Every chunk of a PNG gets the checksum that it should have; a mutation would hardly ever hit one.
std::vector<uint8_t> Mended(std::span<const uint8_t> png) {
  std::vector<uint8_t> out(png.begin(), png.end());
  const auto length_at = [&](size_t at) {
    return uint32_t{out[at]} << 24 | uint32_t{out[at + 1]} << 16 | uint32_t{out[at + 2]} << 8 | out[at + 3];
  };
  for (size_t at = 8; at + 12 <= out.size();) {
    const size_t length = length_at(at);
    if (length > out.size() - at - 12) break;
    const auto crc = static_cast<uint32_t>(crc32(0, &out[at + 4], static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) out[at + 8 + length + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  PrepareAll(file);
  if (LookAtFile(file).kind == FileKind::Kind::kPng) PrepareAll(Mended(file));
  return 0;
}
