#include "trainer/data/repair.h"

#include <gmock/gmock.h>
#include <png.h>

#include <cmath>

#include "trainer/data/png.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;

std::string Text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string PngOf(const std::vector<uint8_t>& rgb, int width, int height) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, rgb.data(), 0, nullptr);
  std::string out(size, '\0');
  png_image_write_to_memory(&image, out.data(), &size, 0, rgb.data(), 0, nullptr);
  out.resize(size);
  return out;
}

/// Mean difference of a JPEG's pixels from `rgb`.
double Difference(std::span<const uint8_t> jpeg, const std::vector<uint8_t>& rgb) {
  JpegDecoder decoder;
  const JpegSize size = decoder.Open(jpeg).value();
  const Box all{0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
  const auto part = decoder.Decode(all, 0, size.width, size.height).value();
  double sum = 0;
  const size_t row = static_cast<size_t>(size.width) * 3;
  for (size_t i = 0; i < rgb.size(); ++i) {
    const size_t x = i % row;
    sum += std::abs(part.pixels.row(static_cast<int>(i / row))[x / 3 * 4 + x % 3] - rgb[i]);
  }
  return sum / static_cast<double>(rgb.size());
}

TEST(Repair, AGoodFileIsTakenBitForBit) {
  ImagePreparer preparer({});
  for (const JpegEncodeOptions options :
       {JpegEncodeOptions{}, JpegEncodeOptions{.components = 1}, JpegEncodeOptions{.progressive = true}}) {
    const std::string file = WavesJpeg(70, 50, options);
    const auto image = preparer.Prepare(AsBytes(file));
    EXPECT_TRUE(image.keep) << image.detail;
    EXPECT_EQ(image.finding, Finding::kNone);
    EXPECT_EQ(Text(image.file), file);
    EXPECT_EQ(image.facts.width, 70U);
    EXPECT_EQ(image.facts.height, 50U);
  }
}

TEST(Repair, CmykBecomesRgbWithItsColours) {
  // Adobe's CMYK is inverted: with no black, C, M and Y are R, G and B.
  const auto rgb = Waves(64, 48, 3);
  std::vector<uint8_t> cmyk;
  for (size_t i = 0; i < rgb.size(); i += 3) {
    cmyk.insert(cmyk.end(), {rgb[i], rgb[i + 1], rgb[i + 2], 255});
  }
  const std::string file = EncodeJpeg(cmyk, 64, 48, {.quality = 95, .components = 4}).value();
  ImagePreparer preparer({.quality = 95});
  const auto image = preparer.Prepare(AsBytes(file));
  EXPECT_TRUE(image.keep);
  EXPECT_EQ(image.finding, Finding::kCmyk);
  EXPECT_EQ(image.facts.components, 3U);
  EXPECT_LT(Difference(image.file, rgb), 6);
  const auto as_is = ImagePreparer({.repair = false}).Prepare(AsBytes(file));
  EXPECT_EQ(Text(as_is.file), file);
  EXPECT_EQ(as_is.finding, Finding::kCmyk);
}

TEST(Repair, APngBecomesAJpeg) {
  const auto rgb = Waves(61, 43, 3);
  const std::string file = PngOf(rgb, 61, 43);
  ImagePreparer preparer({.quality = 95});
  const auto image = preparer.Prepare(AsBytes(file));
  ASSERT_TRUE(image.keep) << image.detail;
  EXPECT_EQ(image.finding, Finding::kPng);
  EXPECT_EQ(image.facts.kind, FileKind::Kind::kJpeg);
  EXPECT_LT(Difference(image.file, rgb), 6);
}

TEST(Repair, BrokenFilesAreLeftOutWithTheReason) {
  ImagePreparer preparer({});
  const std::string good = WavesJpeg(200, 150);
  const auto cut = preparer.Prepare(AsBytes(good).first(good.size() / 2));
  EXPECT_FALSE(cut.keep);
  EXPECT_EQ(cut.finding, Finding::kTruncated);
  std::string hollow = good.substr(0, good.size() / 2) + "\xff\xd9";
  const auto ended = preparer.Prepare(AsBytes(hollow));
  EXPECT_FALSE(ended.keep) << "data end before the image, though an end marker is there";
  EXPECT_EQ(ended.finding, Finding::kTruncated);
  const auto text = preparer.Prepare(AsBytes("no image at all"));
  EXPECT_FALSE(text.keep);
  EXPECT_EQ(text.finding, Finding::kUndecodable);
  EXPECT_THAT(text.detail, HasSubstr("not a JPEG file"));
  const std::string png = PngOf(Waves(61, 43, 3), 61, 43);
  for (const size_t size : {size_t{8}, size_t{30}, png.size() / 2}) {
    const auto half = preparer.Prepare(AsBytes(png).first(size));
    EXPECT_FALSE(half.keep) << size;
    EXPECT_EQ(half.finding, Finding::kUndecodable);
  }
  EXPECT_FALSE(preparer.Prepare({}).keep);
  // The preparer goes on after each.
  EXPECT_TRUE(preparer.Prepare(AsBytes(good)).keep);
  EXPECT_TRUE(ImagePreparer({.repair = false}).Prepare(AsBytes(good).first(good.size() / 2)).keep);
}

TEST(Repair, AHugePngIsRefusedBeforeItIsDecoded) {
  std::string png = PngOf(Waves(16, 16, 3), 16, 16);
  png[16] = '\0';
  png[17] = '\0';
  png[18] = '\xff';  // 65,296 pixels wide and high
  png[22] = '\xff';
  EXPECT_FALSE(DecodePng(AsBytes(png)).has_value());
}

TEST(Repair, ResizingMakesTheShortSideFitAndNeverEnlarges) {
  ImagePreparer preparer({.resize = 40, .quality = 95});
  const std::string wide = WavesJpeg(201, 80);
  const auto image = preparer.Prepare(AsBytes(wide));
  EXPECT_TRUE(image.resized);
  EXPECT_EQ(image.facts.width, 100U);  // 40 * 201 / 80, rounded down
  EXPECT_EQ(image.facts.height, 40U);
  const std::string grey = WavesJpeg(60, 90, {.components = 1});
  const auto small = preparer.Prepare(AsBytes(grey));
  EXPECT_EQ(small.facts.components, 1U);
  EXPECT_EQ(small.facts.width, 40U);
  EXPECT_EQ(small.facts.height, 60U);
  const std::string fits = WavesJpeg(40, 90);
  const auto same = preparer.Prepare(AsBytes(fits));
  EXPECT_FALSE(same.resized);
  EXPECT_EQ(Text(same.file), fits);
}

TEST(FileKind, NeverReadsPastTheEnd) {
  const std::string jpeg = WavesJpeg(40, 30);
  for (size_t size = 0; size < jpeg.size(); ++size) {
    const std::vector<uint8_t> part(jpeg.begin(), jpeg.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(LookAtFile(part).has_end) << size;
  }
  const auto whole = LookAtFile(AsBytes(jpeg));
  EXPECT_TRUE(whole.has_end);
  EXPECT_EQ(whole.width, 40U);
  EXPECT_EQ(whole.components, 3U);
}

}  // namespace
}  // namespace imgd::data
