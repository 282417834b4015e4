#include "trainer/data/repair.h"

#include <algorithm>
#include <array>

#include "trainer/data/jpeg_encode.h"
#include "trainer/data/png.h"
#include "trainer/data/source.h"

namespace imgd::data {
namespace {

/// What the headers alone tell.
Finding FindingOf(const FileKind& facts) {
  if (facts.kind == FileKind::Kind::kPng) return Finding::kPng;
  if (facts.kind == FileKind::Kind::kOther) return Finding::kUndecodable;
  if (!facts.has_end) return Finding::kTruncated;
  return facts.components == 4 ? Finding::kCmyk : Finding::kNone;
}

/// torchvision's Resize: the short side is `target`, the long one is rounded down.
JpegSize SmallerSize(const ImageView& image, int target) {
  const int least = std::min(image.width, image.height);
  if (target == 0 || least <= target) return {image.width, image.height};
  const auto scaled = [&](int side) {
    return side == least ? target : static_cast<int>(int64_t{target} * side / least);
  };
  return {scaled(image.width), scaled(image.height)};
}

}  // namespace

std::string_view NameOf(Finding finding) {
  static constexpr std::array<std::string_view, kFindings> kNames = {
      "none", "cmyk", "png", "truncated", "undecodable", "too_large", "no_plain_file"};
  return kNames[static_cast<size_t>(finding)];
}

PreparedImage ImagePreparer::Prepare(std::span<const uint8_t> file) {
  PreparedImage image{.file = file, .facts = LookAtFile(file)};
  image.finding = FindingOf(image.facts);
  if (rules_.repair) {
    if (const Status decoded = DecodeOrRecode(image); !decoded) {
      image.keep = false;
      image.detail = decoded.error().message;
      // libjpeg's words for data that end before the image does.
      const bool early =
          image.facts.kind == FileKind::Kind::kJpeg && image.detail.find("remature end") != std::string::npos;
      image.finding = early ? Finding::kTruncated : Finding::kUndecodable;
      return image;
    }
  }
  if (rules_.restart && image.facts.kind == FileKind::Kind::kJpeg) {
    AddRestarts(image);
  }
  return image;
}

Result<DecodedPart> ImagePreparer::Decode(std::span<const uint8_t> file, bool whole) {
  IMGD_ASSIGN(const JpegSize size, decoder_.Open(file));
  const Box all{0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
  return whole ? decoder_.Decode(all, 0, size.width, size.height) : decoder_.Decode(all, 0, 1, 1);
}

Status ImagePreparer::DecodeOrRecode(PreparedImage& image) {
  const auto least = std::min(image.facts.width, image.facts.height);
  const bool shrink = rules_.resize > 0 && least > static_cast<uint32_t>(rules_.resize);
  if (image.facts.kind == FileKind::Kind::kPng) {
    IMGD_ASSIGN(const Pixels pixels, DecodePng(image.file));
    return Encode(pixels.view(), /*grey=*/false, image);
  }
  if (image.facts.components == 4 || shrink) {
    IMGD_ASSIGN(const DecodedPart part, Decode(image.file, /*whole=*/true));
    return Encode(part.pixels, image.facts.components == 1, image);
  }
  // The coefficients are decoded, of the pixels only every eighth: it costs little, and shows broken data.
  IMGD_ASSIGN(const DecodedPart part, Decode(image.file, /*whole=*/false));
  static_cast<void>(part);
  return {};
}

Status ImagePreparer::Encode(const ImageView& pixels, bool grey, PreparedImage& image) {
  const JpegSize size = SmallerSize(pixels, rules_.resize);
  const size_t count = static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
  rgb_.resize(count * 3);
  image.resized = size.width != pixels.width || size.height != pixels.height;
  if (image.resized) {
    const Box all{0, 0, static_cast<double>(pixels.width), static_cast<double>(pixels.height)};
    resizer_.Resize(pixels, all, size.width, size.height, /*flip=*/false, rgb_.data());
  } else {
    uint8_t* out = rgb_.data();
    for (int y = 0; y < size.height; ++y) {
      const uint8_t* in = pixels.row(y);
      for (int x = 0; x < size.width; ++x, in += 4, out += 3) std::copy_n(in, 3, out);
    }
  }
  if (grey) {
    for (size_t i = 0; i < count; ++i) rgb_[i] = rgb_[i * 3];
  }
  const JpegEncodeOptions options{.quality = rules_.quality, .components = grey ? 1 : 3};
  IMGD_ASSIGN(encoded_, EncodeJpeg(rgb_, size.width, size.height, options));
  image.file = AsBytes(encoded_);
  image.facts = LookAtFile(image.file);
  return {};
}

void ImagePreparer::AddRestarts(PreparedImage& image) {
  auto marked = AddRestartMarkers(image.file);
  if (!marked || !marked->changed) return;  // one that can't be given markers (say, of CMYK) stays as it is
  marked_ = std::move(*marked);
  image.file = AsBytes(marked_.file);
  image.restarts = marked_.index;
  image.marked = true;
}

}  // namespace imgd::data
