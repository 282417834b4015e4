#include "trainer/data/jpeg_markers.h"

#include <gmock/gmock.h>

#include "trainer/data/file_kind.h"
#include "trainer/data/image_facts.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

/// The markers of the file's segments, in their order.
std::vector<int> MarkersOf(const std::string& file) {
  std::vector<int> markers;
  JpegSegments segments(AsBytes(file));
  while (const auto segment = segments.Next()) markers.push_back(segment->marker);
  return markers;
}

/// With `extra` before every segment.
std::string WithBetween(const std::string& file, const std::string& extra) {
  std::string out = file.substr(0, 2);
  JpegSegments segments(AsBytes(file));
  while (const auto segment = segments.Next()) {
    const auto begin = static_cast<size_t>(segment->content.data() - AsBytes(file).data()) - 4;
    out += extra + file.substr(begin, segment->content.size() + 4);
  }
  const auto scan = segments.scan();
  return out.append(reinterpret_cast<const char*>(scan.data()), scan.size());
}

// Fill bytes, a restart marker and TEM, which stand alone, and bytes that belong to nothing: libjpeg takes
// the file, so everything of ours must find the same in it.
TEST(JpegMarkers, WhatLiesBetweenSegmentsIsPassedOverByAll) {
  const std::string plain = WavesJpeg(61, 43);
  for (const std::string extra : {"\xff\xff", "\xff\xd3", "\xff\x01", "\xff\xff\xff\x01\xff\xd0"}) {
    const std::string file = WithBetween(plain, extra);
    EXPECT_GT(file.size(), plain.size());
    EXPECT_EQ(MarkersOf(file), MarkersOf(plain));
    EXPECT_EQ(FirstScan(AsBytes(file)).size(), FirstScan(AsBytes(plain)).size());
    const FileKind kind = LookAtFile(AsBytes(file));
    EXPECT_EQ(kind.width, 61U);
    EXPECT_EQ(kind.components, 3U);
    EXPECT_TRUE(kind.has_end);
    const ImageFacts facts = LookAtImage(AsBytes(file));
    EXPECT_EQ(facts.height, 43U);
    EXPECT_EQ(facts.quality, 90);
    JpegDecoder decoder;
    const auto size = decoder.Open(AsBytes(file));
    ASSERT_TRUE(size.has_value()) << size.error().message;
    EXPECT_EQ(size->width, 61);
  }
  std::string stray = plain;
  stray.insert(20, std::string("\0\x12\xff\0", 4));  // behind JFIF's segment
  EXPECT_EQ(MarkersOf(stray), MarkersOf(plain));
  EXPECT_EQ(LookAtImage(AsBytes(stray)).width, 61U);
  EXPECT_EQ(LookAtFile(AsBytes(stray)).width, 61U);
}

// So that all of ours know a CMYK file, which is to be coded anew, where libjpeg decodes one.
TEST(JpegMarkers, ASegmentShorterThanItsLengthIsAnEmptyOne) {
  for (const char length : {'\0', '\1', '\2'}) {
    std::string file = WavesJpeg(61, 43);
    file.insert(2, std::string("\xff\xee\0", 3) + length);
    EXPECT_EQ(LookAtFile(AsBytes(file)).width, 61U);
    EXPECT_EQ(LookAtImage(AsBytes(file)).height, 43U);
    EXPECT_TRUE(JpegDecoder().Open(AsBytes(file)).has_value());
  }
}

TEST(JpegMarkers, LengthsThatLieEndTheWalk) {
  const std::string start = "\xff\xd8\xff\xe0";
  EXPECT_THAT(MarkersOf(start + std::string("\0\x06"
                                            "abc",
                                            5)),
              IsEmpty());
  EXPECT_THAT(MarkersOf(start + std::string("\0\x05"
                                            "abc",
                                            5)),
              SizeIs(1));
  EXPECT_THAT(MarkersOf(start + std::string("\0\x02\xff\xd9\xff\xe1\0\x02", 8)), SizeIs(1)) << "the end";
  const std::string file = WavesJpeg(20, 10);
  for (size_t size = 0; size <= file.size(); ++size) {
    const std::vector<uint8_t> part(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_LE(FirstScan(part).size(), size);
    static_cast<void>(LookAtImage(part));
  }
  EXPECT_THAT(FirstScan({}), IsEmpty());
}

}  // namespace
}  // namespace imgd::data
