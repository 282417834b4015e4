#include <gmock/gmock.h>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/folder_writer.h"
#include "trainer/data/image_name.h"
#include "trainer/data/output_file.h"
#include "trainer/data/recordio_writer.h"
#include "trainer/data/shard_writer.h"
#include "trainer/data/test_images.h"
#include "trainer/data/tfrecord_writer.h"
#include "trainer/data/webdataset_writer.h"

namespace imgd::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string ToHex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

std::string Magic() { return "\x0a\x23\xd7\xce"; }

class WritersTest : public testing::Test {
 protected:
  /// What `append` makes of an empty file, in hexadecimal digits.
  template <typename F>
  std::string Written(F append) {
    const std::string path = (folder_.path() / "file").string();
    auto file = OutputFile::Create(path).value();
    append(file);
    EXPECT_TRUE(file.Finish());
    const std::string content = ReadFile(path).value();
    EXPECT_EQ(file.crc32c(), Crc32c(AsBytes(content)));
    return ToHex(content);
  }
  std::string TfRecord(const std::string& a, const std::string& b = "") {
    return Written([&](OutputFile& file) { EXPECT_TRUE(AppendTfRecord(file, a, b)); });
  }
  std::string RecordIo(const std::string& content) {
    return Written([&](OutputFile& file) { EXPECT_TRUE(AppendRecord(file, AsBytes(content))); });
  }

  TempFolder folder_;
};

TEST_F(WritersTest, TfRecordsHaveTensorFlowsBytes) {
  EXPECT_EQ(TfRecord(""), "000000000000000029039807d8ea82a2");
  EXPECT_EQ(TfRecord("hello"), "0500000000000000eab2043e68656c6c6fbb1f1c19");
  EXPECT_EQ(TfRecord("he", "llo"), TfRecord("hello"));
}

TEST_F(WritersTest, RecordIoCutsWhereTheMagicNumberIs) {
  EXPECT_EQ(RecordIo("abc"), "0a23d7ce0300000061626300");
  EXPECT_EQ(RecordIo("abcd" + Magic() + "xy"), "0a23d7ce04000020616263640a23d7ce0200006078790000");
  EXPECT_EQ(RecordIo(Magic() + Magic()), "0a23d7ce000000200a23d7ce000000400a23d7ce00000060");
  EXPECT_EQ(RecordIo("a" + Magic()), "0a23d7ce05000000610a23d7ce000000") << "not at a whole word";
}

TEST_F(WritersTest, AnImagesRecordHasMxNetsHeader) {
  std::vector<uint8_t> record;
  EncodeImageRecord(7, 42, AsBytes("\xff\xd8"), record);
  const std::string text(record.begin(), record.end());
  EXPECT_EQ(RecordIo(text), "0a23d7ce1a000000000000000000e0402a000000000000000000000000000000ffd80000");
}

TEST_F(WritersTest, AnExampleHasProtobufsBytesInOneOrder) {
  const OutputSet set{.classes = {"cat", "dog"}, .boxes = true};
  const std::vector<ObjectBox> boxes = {{0, 0, 0.5F, 1}};
  const std::string image = "IMG";
  EncodedExample out;
  EncodeExample(set,
                {.name = "dog/1",
                 .label = 1,
                 .file = AsBytes(image),
                 .facts = {.width = 300, .height = 2, .components = 1},
                 .boxes = boxes},
                out);
  const std::string& f = out.features;
  EXPECT_EQ(ToHex(out.head),
            "0a" + fmt::format("{:02x}", f.size() % 128 + 128) + fmt::format("{:02x}", f.size() / 128));
  // An entry of the map: { 1: key, 2: Feature { 3: Int64List { 1: packed 300 } } }
  EXPECT_TRUE(f.ends_with("\x0a\x15\x0a\x0bimage/width\x12\x06\x1a\x04\x0a\x02\xac\x02")) << ToHex(f);
  EXPECT_THAT(f, HasSubstr("\x0a\x18\x0a\x0dimage/encoded\x12\x07\x0a\x05\x0a\x03IMG"));
  EXPECT_THAT(f, HasSubstr("image/class/label\x12\x05\x1a\x03\x0a\x01\x02")) << "labels begin at 1";
  EXPECT_THAT(f, HasSubstr("Grayscale"));
  EXPECT_THAT(f, HasSubstr("dog/1.JPEG"));
  const std::string half("image/object/bbox/xmax\x12\x08\x12\x06\x0a\x04\x00\x00\x00\x3f", 32);
  EXPECT_THAT(f, HasSubstr(half));
  EXPECT_LT(f.find("image/channels"), f.find("image/class/label"));
  EXPECT_LT(f.find("image/object/bbox/label"), f.find("image/width"));
}

TEST_F(WritersTest, AnExampleHasTheWordsForItsClass) {
  const auto features = [](const OutputSet& set, int32_t label) {
    EncodedExample out;
    EncodeExample(set, {.name = "x", .label = label, .file = AsBytes("IMG")}, out);
    return out.features;
  };
  const OutputSet set{.classes = {"n01440764", "n01443537"}, .words = {"tench, Tinca tinca", ""}};
  EXPECT_THAT(features(set, 0),
              AllOf(HasSubstr("image/class/synset\x12\x0d\x0a\x0b\x0a\x09n01440764"),
                    HasSubstr("image/class/text\x12\x16\x0a\x14\x0a\x12tench, Tinca tinca")));
  EXPECT_THAT(features(set, 1), HasSubstr("image/class/text\x12\x0d\x0a\x0b\x0a\x09n01443537"));
}

TEST(Names, AreThoseThatEachWorldExpects) {
  OutputSet set{.name = "imagenet-train", .shards = 1024};
  EXPECT_EQ(ShardNameOf(set, 7), "imagenet-train-000007.tar");
  set.form = OutputForm::kTfRecord;
  EXPECT_EQ(ShardNameOf(set, 7), "imagenet-train-00007-of-01024");
  set.form = OutputForm::kRecordIo;
  EXPECT_EQ(ShardNameOf(set, 7), "imagenet-train-000007.rec");
  set.shards = 1;
  EXPECT_EQ(ShardNameOf(set, 0), "imagenet-train.rec");
}

TEST(Names, LoseOnlyTheEndingOfAnImage) {
  EXPECT_EQ(WithoutImageEnding("a.b/c.00.JPEG"), "a.b/c.00");
  EXPECT_EQ(WithoutImageEnding("a.jpg/c.00"), "a.jpg/c.00");
  EXPECT_EQ(WithoutImageEnding("a/.jpg"), "a/.jpg");
  EXPECT_EQ(WithImageEnding("a/c.jpeg"), "a/c.jpeg");
  EXPECT_EQ(WithImageEnding("a/c.00"), "a/c.00.JPEG");
  EXPECT_EQ(WebDatasetKeyOf("a.b/c.00.JPEG"), "a.b/c_00");
  EXPECT_EQ(PathInFolder("cat", "cat/x.jpg"), "cat/x.jpg");
  EXPECT_EQ(PathInFolder("cat", "catalogue/x"), "cat/catalogue/x.JPEG");
}

TEST(FolderNames, KeepTheOrderOfTheLabelsWhereTheyCan) {
  EXPECT_THAT(FolderNamesOf({"a", "b"}).value().names, ElementsAre("a", "b"));
  std::vector<std::string> numbers;
  for (int i = 0; i < 11; ++i) numbers.push_back(std::to_string(i));
  const auto padded = FolderNamesOf(numbers).value();
  EXPECT_EQ(padded.names[2], "02");
  EXPECT_FALSE(padded.renumbered);
  EXPECT_TRUE(FolderNamesOf({"b", "a"}).value().renumbered);
  for (const char* bad : {"..", "a/b", "", ".hidden"}) {
    EXPECT_THAT(FolderNamesOf({"a", bad}).error().message, HasSubstr("can't be a folder's name"));
  }
  EXPECT_THAT(FolderNamesOf({"crane", "crane"}).error().message, HasSubstr("two classes are called 'crane'"));
}

TEST_F(WritersTest, NoNameLeadsOutOfTheFolder) {
  const OutputSet set{
      .form = OutputForm::kImageFolder, .folder = folder_.path().string(), .classes = {"cat"}};
  const auto writer = OpenShardWriter(set, 0).value();
  for (const char* name : {"../../etc/x", "cat/../../x", "a//b", ".x", "cat/./x"}) {
    const Status added = writer->Add({.name = name, .file = AsBytes("x")});
    ASSERT_FALSE(added.has_value()) << name;
    EXPECT_THAT(added.error().message, HasSubstr("is no name for an image's file"));
  }
}

}  // namespace
}  // namespace imgd::data
