#include "trainer/data/jpeg.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "trainer/data/random.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;

// A decoded part with pixels of its own.
struct Picture {
  int width = 0;
  int height = 0;
  Box box;
  std::vector<uint8_t> rgbx;
  int at(int x, int y, int c) const {
    const size_t pixel = static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x);
    return rgbx[pixel * 4 + static_cast<size_t>(c)];
  }
};

Result<Picture> Decode(JpegDecoder& decoder, const std::string& file, const Box& box, int min_size) {
  IMGD_TRY(decoder.Open(AsBytes(file)));
  IMGD_ASSIGN(const DecodedPart part, decoder.Decode(box, 0, min_size, min_size));
  Picture picture{part.pixels.width, part.pixels.height, part.box, {}};
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* row = part.pixels.row(y);
    picture.rgbx.insert(picture.rgbx.end(), row, row + static_cast<ptrdiff_t>(picture.width) * 4);
  }
  return picture;
}

Result<Picture> DecodeAll(const std::string& file, int width, int height) {
  JpegDecoder decoder;
  return Decode(decoder, file, {0, 0, static_cast<double>(width), static_cast<double>(height)}, 1 << 20);
}

std::string ErrorOf(const std::string& file) {
  JpegDecoder decoder;
  const auto size = decoder.Open(AsBytes(file));
  if (!size) return size.error().message;
  const auto picture =
      Decode(decoder, file, {0, 0, static_cast<double>(size->width), static_cast<double>(size->height)}, 1);
  return picture ? "" : picture.error().message;
}

class JpegKind : public testing::TestWithParam<JpegEncodeOptions> {};

TEST_P(JpegKind, ComesOutAsItWentIn) {
  const auto& options = GetParam();
  const auto picture = DecodeAll(WavesJpeg(90, 61, options), 90, 61).value();
  ASSERT_EQ(picture.width, 90);
  ASSERT_EQ(picture.height, 61);
  const auto original = Waves(90, 61, options.components);
  double error = 0;
  for (int y = 0; y < 61; ++y) {
    for (int x = 0; x < 90; ++x) {
      for (int c = 0; c < 3; ++c) {
        const auto index = static_cast<size_t>(y) * 90 + static_cast<size_t>(x);
        const uint8_t* pixel = &original[index * static_cast<size_t>(options.components)];
        int expected = pixel[options.components == 1 ? 0 : c];
        if (options.components == 4) expected = expected * pixel[3] / 255;  // Adobe's CMYK is inverted
        error += std::abs(expected - picture.at(x, y, c));
      }
    }
  }
  EXPECT_LT(error / (90 * 61 * 3), 4.0);
}

// Cropping inside the decoder must not change a single pixel, wherever the crop lies in the grid of blocks.
TEST_P(JpegKind, ACropIsTheSameAsThatPartOfTheWhole) {
  const std::string file = WavesJpeg(163, 121, GetParam());
  const auto whole = DecodeAll(file, 163, 121).value();
  JpegDecoder decoder;
  Random random(1, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 60; ++i) {
    const int width = 1 + static_cast<int>(random.Below(163));
    const int height = 1 + static_cast<int>(random.Below(121));
    const int left = static_cast<int>(random.Below(static_cast<uint32_t>(163 - width + 1)));
    const int top = static_cast<int>(random.Below(static_cast<uint32_t>(121 - height + 1)));
    const Box box{static_cast<double>(left), static_cast<double>(top), static_cast<double>(width),
                  static_cast<double>(height)};
    const auto part = Decode(decoder, file, box, 1 << 20).value();
    ASSERT_EQ(part.width, width);
    ASSERT_EQ(part.height, height);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < 3; ++c) {
          ASSERT_EQ(part.at(x, y, c), whole.at(left + x, top + y, c))
              << width << "x" << height << "+" << left << "+" << top << " at " << x << "," << y;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, JpegKind,
                         testing::Values(JpegEncodeOptions{.components = 3, .chroma_sampling = 2},
                                         JpegEncodeOptions{.components = 3, .chroma_sampling = 1},
                                         JpegEncodeOptions{.components = 1},
                                         JpegEncodeOptions{.components = 4},
                                         JpegEncodeOptions{.components = 3, .progressive = true},
                                         JpegEncodeOptions{.components = 1, .progressive = true},
                                         JpegEncodeOptions{.components = 4, .progressive = true}));

TEST(Jpeg, ScalesDownAsFarAsTheCropAllows) {
  const std::string file = WavesJpeg(640, 480);
  JpegDecoder decoder;
  const auto eighth = Decode(decoder, file, {0, 0, 640, 480}, 60).value();
  EXPECT_EQ(eighth.width, 80);
  EXPECT_EQ(eighth.height, 60);
  EXPECT_DOUBLE_EQ(eighth.box.width, 80);
  const auto part = Decode(decoder, file, {101, 51, 300, 300}, 150).value();
  EXPECT_EQ(part.width, 151);  // [50.5, 200.5] widened to whole pixels
  EXPECT_EQ(part.height, 151);
  EXPECT_DOUBLE_EQ(part.box.left, 0.5);
  EXPECT_DOUBLE_EQ(part.box.width, 150);
  const auto upscaled = Decode(decoder, file, {0, 0, 100, 100}, 224).value();
  EXPECT_EQ(upscaled.width, 100);
}

TEST(Jpeg, AScaledCropIsTheSameAsThatPartOfTheScaledWhole) {
  const std::string file = WavesJpeg(645, 483);
  JpegDecoder decoder;
  const auto whole = Decode(decoder, file, {0, 0, 645, 483}, 240).value();  // by 4/8
  ASSERT_EQ(whole.width, 323);
  const auto part = Decode(decoder, file, {82, 102, 482, 362}, 181).value();
  ASSERT_EQ(part.width, 241);
  for (int y = 0; y < part.height; ++y) {
    for (int x = 0; x < part.width; ++x) ASSERT_EQ(part.at(x, y, 0), whole.at(x + 41, y + 51, 0));
  }
}

TEST(Jpeg, AMarginIsDecodedWhereTheImageHasIt) {
  const std::string file = WavesJpeg(64, 64);
  JpegDecoder decoder;
  ASSERT_TRUE(decoder.Open(AsBytes(file)).has_value());
  const auto part = decoder.Decode({0, 20, 64, 30}, 3, 64, 30).value();
  EXPECT_EQ(part.pixels.width, 64);
  EXPECT_EQ(part.pixels.height, 36);
  EXPECT_DOUBLE_EQ(part.box.top, 3);
}

TEST(HostileJpeg, OtherFormatsAreToldByTheirFirstBytes) {
  EXPECT_EQ(ErrorOf(""), "the file is empty");
  EXPECT_EQ(ErrorOf("\x89PNG\r\n\x1a\n0000"), "not a JPEG file: it starts like a PNG file");
  EXPECT_EQ(ErrorOf("RIFF1234WEBP"), "not a JPEG file: it starts like a WebP file");
  EXPECT_EQ(ErrorOf("<html>"), "not a JPEG file: it starts with bytes 3c 68 74 instead of ff d8 ff");
  EXPECT_THAT(ErrorOf("\xff"), HasSubstr("starts with bytes ff instead"));
}

TEST(HostileJpeg, AFileCutAnywhereIsAnError) {
  for (const bool progressive : {false, true}) {
    const std::string file = WavesJpeg(120, 90, {.progressive = progressive});
    for (size_t size = 0; size < file.size(); size += 1 + size / 10) {
      EXPECT_NE(ErrorOf(file.substr(0, size)), "") << size << " of " << file.size() << " bytes";
    }
    EXPECT_EQ(ErrorOf(file.substr(0, file.size() - 40)), "Premature end of JPEG file");
  }
}

TEST(HostileJpeg, ACutFileIsAnErrorAlsoForACropAboveTheCut) {
  const std::string file = WavesJpeg(120, 400);
  JpegDecoder decoder;
  EXPECT_FALSE(Decode(decoder, file.substr(0, file.size() * 3 / 4), {0, 0, 64, 64}, 64).has_value());
}

TEST(HostileJpeg, AnEndPastedOntoACutFileDoesNotHelp) {
  const std::string file = WavesJpeg(120, 90);
  EXPECT_THAT(ErrorOf(file.substr(0, file.size() / 2) + "\xff\xd9"), HasSubstr("premature end"));
}

TEST(HostileJpeg, BytesAfterTheEndDoNotMatter) {
  EXPECT_EQ(ErrorOf(WavesJpeg(120, 90) + std::string(1000, '\0') + "trailing"), "");
}

size_t SizeFieldOf(const std::string& file) {
  size_t at = file.find("\xff\xc0");
  if (at == std::string::npos) at = file.find("\xff\xc2");
  return at + 5;
}

std::string WithSize(std::string file, int width, int height) {
  const size_t at = SizeFieldOf(file);
  file[at] = static_cast<char>(height >> 8);
  file[at + 1] = static_cast<char>(height & 255);
  file[at + 2] = static_cast<char>(width >> 8);
  file[at + 3] = static_cast<char>(width & 255);
  return file;
}

TEST(HostileJpeg, HugeSizesInTheHeaderAllocateNothing) {
  EXPECT_THAT(ErrorOf(WithSize(WavesJpeg(64, 64), 65535, 65535)), HasSubstr("65500 pixels"));
  EXPECT_THAT(ErrorOf(WithSize(WavesJpeg(64, 64, {.progressive = true}), 65500, 65500)),
              HasSubstr("an image of 65500 x 65500 pixels needs"));
  EXPECT_NE(ErrorOf(WithSize(WavesJpeg(64, 64), 65500, 65500)), "");
  EXPECT_NE(ErrorOf(WithSize(WavesJpeg(64, 64), 0, 64)), "");
}

TEST(HostileJpeg, GarbageNeverCrashes) {
  const std::string good = WavesJpeg(80, 60);
  const std::string progressive = WavesJpeg(80, 60, {.progressive = true});
  JpegDecoder decoder;  // one for all: a bad file must not spoil the next
  Random random(11, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 400; ++i) {
    std::string bad = i % 2 == 0 ? good : progressive;
    for (int k = 0; k <= i % 7; ++k) {
      bad[2 + random.Below(static_cast<uint32_t>(bad.size() - 2))] = static_cast<char>(random.Next32());
    }
    const auto size = decoder.Open(AsBytes(bad));
    if (!size) continue;
    const Box all{0, 0, static_cast<double>(size->width), static_cast<double>(size->height)};
    static_cast<void>(decoder.Decode(all, 0, 16, 16));
    static_cast<void>(decoder.Examine(AsBytes(bad)));
  }
  EXPECT_EQ(Decode(decoder, good, {0, 0, 80, 60}, 60).value().rgbx, DecodeAll(good, 80, 60).value().rgbx);
}

TEST(HostileJpeg, TooManyScansAreAnError) {
  const std::string file = WavesJpeg(64, 64, {.components = 1, .progressive = true});
  // The first scan, over and over: each sets the same coefficients again.
  const size_t begin = file.find("\xff\xda");
  size_t end = begin + 2;
  while (file[end] != '\xff' || file[end + 1] == '\0') ++end;
  std::string many = file.substr(0, end);
  for (int i = 0; i < 2000; ++i) many += file.substr(begin, end - begin);
  EXPECT_EQ(ErrorOf(many + "\xff\xd9"), "Too many scans in JPEG file");
}

}  // namespace
}  // namespace imgd::data
