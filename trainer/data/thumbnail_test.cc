#include "trainer/data/thumbnail.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "trainer/data/image_folder.h"
#include "trainer/data/jpeg_encode.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

std::string Noise(int width, int height) {
  std::vector<uint8_t> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  uint32_t state = 1;
  for (auto& byte : pixels) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return EncodeJpeg(pixels, width, height, {.quality = 95}).value();
}

TEST(Thumbnails, AreSmallHaveTheImagesShapeAndNeverTooManyBytes) {
  const TempFolder root;
  root.Write("a/1.jpg", Noise(640, 320));
  root.Write("a/2.jpg", Noise(30, 20));
  root.Write("a/3.jpg", "no picture");
  const auto set = ImageFolder::Open(root.path()).value();
  Thumbnails thumbnails;
  const auto size_of = [](const std::string& jpeg) {
    JpegDecoder decoder;
    const auto size = decoder.Open({reinterpret_cast<const uint8_t*>(jpeg.data()), jpeg.size()}).value();
    return std::pair(size.width, size.height);
  };
  const auto wide = thumbnails.Make(set, 0).value();
  EXPECT_EQ(size_of(wide), std::pair(96, 48));
  EXPECT_LE(wide.size(), Thumbnails::kMostBytes);
  EXPECT_EQ(size_of(thumbnails.Make(set, 1).value()), std::pair(30, 20)) << "none is enlarged";
  EXPECT_EQ(thumbnails.Make(set, 2).error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(thumbnails.Make(set, 0).value(), wide) << "after one that can't be read";
}

}  // namespace
}  // namespace imgd::data
