#include <gmock/gmock.h>

#include <cstring>

#include "trainer/data/crc32c.h"
#include "trainer/data/recordio.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_records.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Hex(std::string_view digits) {
  std::string out;
  std::string pair;
  for (const char c : digits) {
    if (c == ' ') continue;
    pair += c;
    if (pair.size() < 2) continue;
    out += static_cast<char>(std::stoi(pair, nullptr, 16));
    pair.clear();
  }
  return out;
}

class RecordsTest : public testing::Test {
 protected:
  /// "key:label=bytes" of each image, or the error.
  std::vector<std::string> List(const std::string& where) {
    const auto set = ShardSet::Open((folder_.path() / where).string());
    if (!set) return {set.error().message};
    std::vector<std::string> out;
    FileBuffer buffer;
    for (size_t i = 0; i < (*set)->size(); ++i) {
      const Status read = (*set)->Read(i, buffer);
      const std::string bytes =
          read ? std::string(buffer.bytes().begin(), buffer.bytes().end()) : read.error().message;
      out.push_back(fmt::format("{}:{}={}", (*set)->name(i), (*set)->label(i), bytes));
    }
    classes_ = (*set)->classes();
    return out;
  }

  TempFolder folder_;
  std::vector<std::string> classes_;
};

TEST(Crc32c, KnowsTheCheckValue) {
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283U);
  EXPECT_EQ(Crc32c(AsBytes("6789"), Crc32c(AsBytes("12345"))), 0xE3069283U);
}

TEST_F(RecordsTest, TfRecordsAreFramedAsTensorFlowFramesThem) {
  EXPECT_EQ(TfRecord(""), Hex("0000000000000000 29039807 d8ea82a2"));
  EXPECT_EQ(TfRecord("hello"), Hex("0500000000000000 eab2043e 68656c6c6f bb1f1c19"));
}

TEST_F(RecordsTest, TfRecordsOfImageNetCountFromOne) {
  folder_.Write("train-00000-of-00002", TfRecord(Example("AAA", 2, "n02")) +
                                            TfRecord(Example(std::string(5000, 'b'), 1, "n01", false)));
  folder_.Write("train-00001-of-00002", TfRecord(Example("C", 3)));
  EXPECT_THAT(List(""), ElementsAre("x/n2:1=AAA", "x/n1:0=" + std::string(5000, 'b'), "x/n3:2=C"));
  EXPECT_THAT(classes_, ElementsAre("n01", "n02", "2"));
  folder_.Write("zero.tfrecord", TfRecord(Example("A", 0)) + TfRecord(Example("B", 2)));
  EXPECT_THAT(List("zero.tfrecord"), ElementsAre("x/n0:0=A", "x/n2:2=B"));
  EXPECT_THAT(List("").at(0),
              HasSubstr("holds shards of several sets, as train-00000-of-00002 and zero.tfrecord"));
}

TEST_F(RecordsTest, DamagedTfRecordsAreFound) {
  const auto error = [&](const std::string& content) {
    folder_.Write("x.tfrecord", content);
    return List("x.tfrecord").at(0);
  };
  const std::string good = TfRecord(Example("AAA", 1));
  EXPECT_THAT(error(good + "short"),
              HasSubstr(fmt::format("at byte {}: it ends within a record", good.size())));
  std::string bad = good;
  bad[0] = static_cast<char>(bad[0] ^ 1);
  EXPECT_THAT(error(bad), HasSubstr("the checksum of the length is wrong"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)), HasSubstr("where"));
  EXPECT_THAT(error(TfRecord("\xFF\xFF\xFF")), HasSubstr("no tf.train.Example"));
  EXPECT_THAT(error(TfRecord(Bytes(1, Feature("image/encoded", Bytes(1, Bytes(1, "A")))))),
              HasSubstr("no image/encoded and image/class/label"));
  const std::string huge = Raw(~uint64_t{0});
  EXPECT_THAT(error(huge + Raw(MaskedCrc(Crc32c(AsBytes(huge)))) + "1234"),
              HasSubstr("a record of 18446744073709"));
}

TEST_F(RecordsTest, RecordIoIsFramedAsDmlcFramesIt) {
  EXPECT_EQ(RecordIo("abc"), Hex("0a23d7ce 03000000 616263 00"));
  EXPECT_EQ(RecordIo(ImageRecord(7, 42, Hex("ffd8"))),
            Hex("0a23d7ce 1a000000 00000000 0000e040 2a00000000000000 0000000000000000 ffd8 0000"));
}

TEST_F(RecordsTest, RecordIoWithOneLabelSeveralAndPartsThatHadTheMagicNumber) {
  const std::string magic = Raw(0xCED7230AU);
  const std::string cut =
      ImageRecord(5, 9, "1234" + magic + "56" + std::string(2, '-') + magic + magic + "end");
  const std::string first = cut.substr(0, 28);
  folder_.Write("a.rec", RecordIo(ImageRecord(7, 42, "seven")) + RecordIo(ImageRecord(0, 43, "two", {2, 8})) +
                             RecordIo(first, 1) + RecordIo("56--", 2) + RecordIo("", 2) + RecordIo("end", 3) +
                             RecordIo(ImageRecord(1, 44, "")));
  EXPECT_THAT(List("a.rec"), ElementsAre("42:7=seven", "43:2=two",
                                         "9:5=1234" + magic + "56--" + magic + magic + "end", "44:1="));
}

TEST_F(RecordsTest, DamagedRecordIoIsFound) {
  const auto error = [&](const std::string& content) {
    folder_.Write("x.rec", content);
    return List("x.rec").at(0);
  };
  const std::string good = RecordIo(ImageRecord(7, 42, "seven"));
  EXPECT_THAT(error("nonsense"), HasSubstr("at byte 0: no record begins here"));
  EXPECT_THAT(error(good + "1234"), HasSubstr("it ends within a record"));
  EXPECT_THAT(error(good.substr(0, good.size() - 4)), HasSubstr("bytes, where"));
  EXPECT_THAT(error(RecordIo("short")), HasSubstr("too short for an image's"));
  EXPECT_THAT(error(RecordIo("x", 3)), HasSubstr("a record's later part without its first"));
  EXPECT_THAT(error(RecordIo("x", 1)), HasSubstr("it ends within a record"));
  EXPECT_THAT(error(RecordIo("x", 1) + good), HasSubstr("has no last one"));
  EXPECT_THAT(error(RecordIo(ImageRecord(-1, 1, "x"))), HasSubstr("the label -1 is no class"));
  EXPECT_THAT(error(RecordIo(ImageRecord(1.5, 1, "x"))), HasSubstr("the label 1.5 is no class"));
  EXPECT_THAT(error(RecordIo(Raw(~0U) + std::string(40, '\0'))),
              HasSubstr("an image with 4294967295 labels"));
}

}  // namespace
}  // namespace imgd::data
