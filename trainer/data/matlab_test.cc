#include "trainer/data/matlab.h"

#include <gmock/gmock.h>

#include "trainer/data/inflate.h"
#include "trainer/data/test_ilsvrc.h"

namespace imgd::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string MatErrorOf(const std::string& bytes) {
  const auto read = ReadMatFile(bytes, "x.mat");
  return read ? "" : read.error().message;
}

TEST(Matlab, ReadsNumbersTextCellsAndStructs) {
  const std::string numbers = MatMatrix(
      6, {2, 2}, "n",
      MatElement(3, MatRaw(int16_t{-5}) + MatRaw(int16_t{6}) + MatRaw(int16_t{7}) + MatRaw(int16_t{300})));
  const std::string empty = MatElement(14, "");
  const std::string cells =
      MatMatrix(1, {1, 3}, "c", MatText("a") + empty + MatMatrix(4, {1, 2}, "", MatElement(16, "\xC3\xA9")));
  const auto read =
      ReadMatFile(MatFile(numbers + MatCompressed(cells) +
                          MatStructs("s", {"id", "wnid"}, {MatNumber(1000.5), MatText("\xE9t")})),
                  "x.mat")
          .value();
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_EQ(read[0].name, "n");
  EXPECT_THAT(read[0].numbers, ElementsAre(-5, 6, 7, 300));
  ASSERT_THAT(read[1].items, SizeIs(3));
  EXPECT_EQ(read[1].items[0].text, "a");
  EXPECT_EQ(read[1].items[1].count(), 0U);
  EXPECT_EQ(read[1].items[2].text, "\xC3\xA9");
  EXPECT_THAT(read[2].fields, ElementsAre("id", "wnid"));
  EXPECT_THAT(read[2].items[0].numbers, ElementsAre(1000.5));
  EXPECT_EQ(read[2].items[1].text, "\xC3\xA9t");
}

/// What scipy.io.savemat(do_compression=True) wrote of an array of structs laid out as ImageNet's, without
/// the header.
constexpr const char* kByScipy =
    "0f000000ca010000789ced55d14ac33014cd74ce0d64389f7c51f2010a5d37ac3e59d007051151d1c711dbbb26da"
    "a590c4cdfd819feb2798b84eb3d0b159f7e885dbf4dce69cde94d3a48910ba682054d3635de71a9ac4468eab3a2b"
    "796eea94632e4149fdbc8a5a79fd5de7e5d5ddc3ed99efb5fddee5b91178bc9e8cdf31ca442ced42926672a6c05f"
    "07bd88b23416c0bf0a3360aac141f528b084aa9ca20461bcc7062401899aba788c7ed6d374d653b1d2c4965547f9"
    "fcd0e2570bf80d6bfe768eb9d769fb478117583ac70b74361c1d83234138e4fc9b05fc3d876f70cafa4a62c2633c"
    "c886203105321ce3ece91922250bfa5af6fb4cc3ccf72c7ead808facb131e77b94796f197ef58ffc358b1fa232be"
    "6877bb5e70d4b5742e16e8ec383a062be0113dc0f78c47042b73fdd15be4937d47cfe0be0049474481c03189e030"
    "652f80133200dc6792fefbe4b7fc758b1fa2323ef1bd2038f13b73fa28d2a93b3a064b203865195fc617d8e11b4c"
    "b8de2dfa58c2100449714a440218888058d7482aff7d519e1fa232bed0d10ebade9c3e8a746a8e8ec1c01553e3e5"
    "f69f96c3375851a2f088b288627863524d0fee55fc2f763f457e5847b37ed845d3f838cd6fc2c9500f5771feffc5"
    "679fb2fd74a1";

TEST(Matlab, ReadsWhatScipyWrites) {
  std::string bytes;
  for (const char* p = kByScipy; *p != '\0'; p += 2)
    bytes += static_cast<char>(std::stoi(std::string(p, 2), nullptr, 16));
  const auto read = ReadMatFile(MatFile(bytes), "meta.mat");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  ASSERT_THAT(*read, SizeIs(1));
  const auto& synsets = read->front();
  EXPECT_EQ(synsets.name, "synsets");
  EXPECT_THAT(synsets.fields, ElementsAre("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children",
                                          "children", "wordnet_height", "num_train_images"));
  ASSERT_THAT(synsets.items, SizeIs(4 * 8));
  EXPECT_EQ(synsets.items[8 + 1].text, "n01440764");
  EXPECT_EQ(synsets.items[8 + 2].text, "tench, Tinca tinca");
  EXPECT_THAT(synsets.items[24 + 4].numbers, ElementsAre(3));
  EXPECT_THAT(synsets.items[24 + 5].numbers, ElementsAre(1, 2, 3));
}

TEST(Matlab, HostileFilesAreErrors) {
  EXPECT_THAT(MatErrorOf("x"), HasSubstr("x.mat is no MATLAB file of level 5"));
  EXPECT_THAT(MatErrorOf("MATLAB 7.3 MAT-file"), HasSubstr("is a MATLAB 7.3 (HDF5) file"));
  std::string big_endian = MatFile("");
  big_endian.replace(124, 4, std::string("\1\0MI", 4));
  EXPECT_THAT(MatErrorOf(big_endian), HasSubstr("big-endian"));
  // Sizes that lie.
  EXPECT_THAT(MatErrorOf(MatFile(MatRaw(uint32_t{14}) + MatRaw(uint32_t{0xFFFFFFF0}))),
              HasSubstr("at byte 128: an element of 4294967280 bytes, where 0 are left"));
  EXPECT_THAT(MatErrorOf(MatFile(MatMatrix(1, {65536, 65536}, "c", ""))),
              HasSubstr("arrays, where 0 bytes are left"));
  EXPECT_THAT(MatErrorOf(MatFile(MatMatrix(1, {-1, 1}, "c", ""))), HasSubstr("a dimension below zero"));
  EXPECT_THAT(MatErrorOf(MatFile(MatMatrix(6, {3, 1}, "n", MatElement(2, "ab")))),
              HasSubstr("2 numbers, where the dimensions ask for 3"));
  EXPECT_THAT(MatErrorOf(MatFile(MatMatrix(6, {1, 1}, "n", MatElement(14, "")))),
              HasSubstr("numbers of the type 14"));
  // Depth and number.
  std::string deep = MatNumber(1);
  for (int i = 0; i < 40; ++i) deep = MatMatrix(1, {1, 1}, "", deep);
  EXPECT_THAT(MatErrorOf(MatFile(deep)), HasSubstr("arrays more than 16 deep"));
  std::string many;
  for (int i = 0; i < 300'000; ++i) many += MatElement(14, "");
  EXPECT_THAT(MatErrorOf(MatFile(MatCompressed(MatMatrix(1, {300'000, 1}, "", many)))),
              HasSubstr("more than 200000 arrays"));
  // A bomb, and compressed data that are none or have no end.
  EXPECT_THAT(MatErrorOf(MatFile(MatCompressed(std::string(17 << 20, '\0')))),
              HasSubstr("it unpacks to more than 16777216 bytes"));
  EXPECT_THAT(MatErrorOf(MatFile(MatRaw(uint32_t{15}) + MatRaw(uint32_t{4}) + "junk")),
              HasSubstr("no good zlib data"));
  std::string cut = MatCompressed(MatText(std::string(100, 'a')));
  cut.resize(cut.size() - 8);
  cut.replace(4, 4, MatRaw(static_cast<uint32_t>(cut.size() - 8)));
  EXPECT_THAT(MatErrorOf(MatFile(cut)), HasSubstr("no good zlib data: it is cut short"));
}

TEST(Matlab, NoCutOrChangedByteDoesHarm) {
  const std::string whole =
      MatFile(MatStructs("s", {"a", "b"}, {MatNumber(1), MatText("xyz"), MatNumber(2), MatText("")}));
  for (size_t size = 0; size < whole.size(); ++size)
    static_cast<void>(ReadMatFile(whole.substr(0, size), "x"));
  for (size_t at = 128; at < whole.size(); ++at) {
    for (const char c : {'\0', '\1', '\x0E', '\x7F', '\xFF'}) {
      std::string changed = whole;
      changed[at] = c;
      static_cast<void>(ReadMatFile(changed, "x"));
    }
  }
}

TEST(Unpacked, ReadsForwardAndBackAndSaysWhereItEnds) {
  const TempFolder folder;
  std::string content;
  for (uint32_t i = 0; i < 300'000; ++i) content += static_cast<char>('a' + i * i % 26);
  const auto path = folder.Write("x.gz", Deflate(content.substr(0, 1000), true) +
                                             Deflate(content.substr(1000), true) + std::string(512, '\0'));
  const auto source = OpenUnpacked(path).value();
  EXPECT_EQ(ReadText(*source, 200'000, 100'000).value(), content.substr(200'000));
  EXPECT_EQ(ReadText(*source, 990, 20).value(), content.substr(990, 20));
  EXPECT_THAT(ReadText(*source, 299'999, 2).error().message,
              HasSubstr("unpacks to 300000 bytes, which is too short"));
  const auto cut = folder.Write("y.gz", Deflate(content, true).substr(0, 500));
  EXPECT_THAT(ReadText(*OpenUnpacked(cut).value(), 250'000, 1).error().message,
              AllOf(HasSubstr("y.gz is cut short"), HasSubstr("have no end")));
  const auto bad = folder.Write("z.gz", "\x1F\x8B junk, not deflated");
  EXPECT_THAT(ReadText(*OpenUnpacked(bad).value(), 0, 1).error().message, HasSubstr("is no good gzip file"));
  const auto plain = folder.Write("plain", "abc");
  EXPECT_EQ(OpenUnpacked(plain).value()->size(), 3U);
}

}  // namespace
}  // namespace imgd::data
