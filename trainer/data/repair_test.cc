#include "trainer/data/repair.h"

#include <gmock/gmock.h>
#include <png.h>

#include <cmath>

#include "trainer/data/image_facts.h"
#include "trainer/data/png.h"
#include "trainer/data/test_ilsvrc.h"
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

TEST(Repair, YcckBecomesRgbWithItsColours) {
  const auto rgb = Waves(64, 48, 3);
  const std::string file = YcckJpeg(rgb, 64, 48);
  EXPECT_EQ(LookAtImage(AsBytes(file)).colours, ImageFacts::Colours::kYcck);
  EXPECT_LT(Difference(AsBytes(file), rgb), 4) << "as training decodes it";
  ImagePreparer preparer({.quality = 95});
  const auto image = preparer.Prepare(AsBytes(file));
  ASSERT_TRUE(image.keep) << image.detail;
  EXPECT_EQ(image.finding, Finding::kCmyk);
  EXPECT_EQ(LookAtImage(image.file).colours, ImageFacts::Colours::kYcc);
  EXPECT_LT(Difference(image.file, rgb), 6);
  auto half = rgb;
  for (uint8_t& value : half) value = static_cast<uint8_t>(value * 128 / 255);
  EXPECT_LT(Difference(preparer.Prepare(AsBytes(YcckJpeg(rgb, 64, 48, 128))).file, half), 6);
}

/// A PNG file by its parts. `rows`: the image's data, each row behind the 0 that says that it isn't filtered.
struct PngParts {
  int width = 2;
  int height = 1;
  int depth = 8;
  int colours = 2;  ///< 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  std::vector<std::pair<std::string, std::string>> chunks = {};  ///< before the data
  std::string rows = {};
  bool interlaced = false;
};

std::string PngFile(const PngParts& png) {
  const auto big32 = [](size_t value) {
    std::string out;
    for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift);
    return out;
  };
  const auto chunk = [&](const std::string& type, const std::string& data) {
    const std::string body = type + data;
    const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
    return big32(data.size()) + body + big32(crc);
  };
  std::string header = big32(static_cast<size_t>(png.width)) + big32(static_cast<size_t>(png.height));
  for (const int value : {png.depth, png.colours, 0, 0, png.interlaced ? 1 : 0})
    header += static_cast<char>(value);
  std::string out = "\x89PNG\r\n\x1A\n" + chunk("IHDR", header);
  for (const auto& [type, data] : png.chunks) out += chunk(type, data);
  return out + chunk("IDAT", Deflate(png.rows, /*gzip=*/false)) + chunk("IEND", "");
}

/// Its colours as "rrggbb rrggbb", row after row; or why there are none.
std::string ColoursOf(const PngParts& png) {
  const auto pixels = DecodePng(AsBytes(PngFile(png)));
  if (!pixels) return pixels.error().message;
  std::string out;
  for (size_t i = 0; i < pixels->bytes.size(); i += 4) {
    out += fmt::format("{}{:02x}{:02x}{:02x}", i == 0 ? "" : " ", pixels->bytes[i], pixels->bytes[i + 1],
                       pixels->bytes[i + 2]);
  }
  return out;
}

std::string Octets(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

TEST(Png, HasTheColoursThatPilGivesIt) {
  const std::string gamma =
      Octets({0, 1, 0x86, 0xA0});  // 1.0: linear light, which PIL takes for sRGB all the same
  const std::string red_and_teal = Octets({0, 200, 16, 8, 0, 128, 129});
  EXPECT_EQ(ColoursOf({.rows = red_and_teal}), "c81008 008081");
  EXPECT_EQ(ColoursOf({.chunks = {{"gAMA", gamma}}, .rows = red_and_teal}), "c81008 008081");
  EXPECT_EQ(ColoursOf({.chunks = {{"tRNS", Octets({0, 200, 0, 16, 0, 8})}}, .rows = red_and_teal}),
            "c81008 008081");
  EXPECT_EQ(ColoursOf({.depth = 16, .rows = Octets({0, 200, 255, 16, 1, 8, 0, 0, 0, 128, 0, 129, 255})}),
            "c81008 008081");
  EXPECT_EQ(ColoursOf({.depth = 16, .colours = 0, .rows = Octets({0, 18, 52, 255, 254})}), "121212 ffffff");
  EXPECT_EQ(
      ColoursOf({.depth = 16, .colours = 0, .chunks = {{"gAMA", gamma}}, .rows = Octets({0, 18, 52, 9, 0})}),
      "121212 090909");
  EXPECT_EQ(ColoursOf({.colours = 6, .rows = Octets({0, 1, 2, 3, 0, 4, 5, 6, 99})}), "010203 040506");
  EXPECT_EQ(ColoursOf({.colours = 4, .rows = Octets({0, 7, 0, 8, 255})}), "070707 080808");
  EXPECT_EQ(ColoursOf({.width = 4, .depth = 2, .colours = 0, .rows = Octets({0, 0b00011011})}),
            "000000 555555 aaaaaa ffffff");
  EXPECT_EQ(
      ColoursOf(
          {.depth = 4,
           .colours = 3,
           .chunks = {{"gAMA", gamma}, {"PLTE", Octets({1, 2, 3, 40, 50, 60})}, {"tRNS", Octets({0, 9})}},
           .rows = Octets({0, 0x10})}),
      "28323c 010203");
  EXPECT_EQ(ColoursOf({.height = 2, .colours = 0, .rows = Octets({0, 1, 0, 2, 0, 3, 4}), .interlaced = true}),
            "010101 020202 030303 040404");
}

TEST(Repair, APngOf16BitsBecomesAJpegOfItsColours) {
  const auto rgb = Waves(61, 43, 3);
  std::string rows;
  for (size_t i = 0; i < rgb.size(); ++i) {
    if (i % (61 * 3) == 0) rows += '\0';
    rows += Octets({rgb[i], static_cast<int>(i % 256)});
  }
  const std::string file = PngFile({.width = 61, .height = 43, .depth = 16, .rows = rows});
  ImagePreparer preparer({.quality = 95});
  const auto image = preparer.Prepare(AsBytes(file));
  ASSERT_TRUE(image.keep) << image.detail;
  EXPECT_EQ(image.finding, Finding::kPng);
  EXPECT_LT(Difference(image.file, rgb), 6);
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
