#include "trainer/data/shard_set.h"

#include <gmock/gmock.h>

#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ShardSetTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string ErrorOf(const std::string& where) const {
    const auto set = ShardSet::Open(where);
    return set ? "" : set.error().message;
  }
  static std::string Bytes(const Dataset& set, size_t i) {
    FileBuffer buffer;
    const Status status = set.Read(i, buffer);
    if (!status) return status.error().message;
    return {buffer.bytes().begin(), buffer.bytes().end()};
  }

  TempFolder folder_;
};

TEST_F(ShardSetTest, ReadsWebDatasetShardsByTheirHeaders) {
  folder_.Write("t-1.tar", Tar({{"c.jpg", "CCC"}, {"c.cls", "1\n"}}));
  folder_.Write("t-0.tar", Tar({{"./x/a.cls", "2"},
                                {"./x/a.seg.png", "no image"},
                                {"./x/a.jpg", "A"},
                                {"b.json", R"({"label": 0})"},
                                {"b.jpeg", "BB"},
                                {"note.txt", "?"}}));
  for (const auto& where :
       {folder_.path().string(), Path("t-{0..1}.tar"), Path("t-{0,1}.tar"), Path("t-*.tar")}) {
    const auto set = ShardSet::Open(where);
    ASSERT_TRUE(set.has_value()) << set.error().message;
    const ShardSet& s = **set;
    ASSERT_EQ(s.size(), 3U) << where;
    EXPECT_THAT(s.shard_sizes(), ElementsAre(2, 1));
    EXPECT_THAT((std::vector<std::string>{s.name(0), s.name(1), s.name(2)}), ElementsAre("x/a", "b", "c"));
    EXPECT_THAT((std::vector<std::string>{Bytes(s, 0), Bytes(s, 1), Bytes(s, 2)}),
                ElementsAre("A", "BB", "CCC"));
    EXPECT_THAT((std::vector<int32_t>{s.label(0), s.label(1), s.label(2)}), ElementsAre(2, 0, 1));
    EXPECT_THAT(s.classes(), ElementsAre("0", "1", "2"));
    EXPECT_THAT(s.place(2), testing::AllOf(HasSubstr("c at byte 512 of "), HasSubstr("t-1.tar")));
  }
}

TEST_F(ShardSetTest, TheIndexAndTheDescriptionAreTakenWhereTheyAre) {
  const auto tar = folder_.Write("s.tar", Tar({{"a.jpg", "AAAA"}, {"a.cls", "0"}}));
  const ShardIndex index{std::filesystem::file_size(tar), {{"renamed", 513, 2, 1}}};
  folder_.Write("s.tar.idx", EncodeShardIndex(index));
  SetDescription description{"small", {"cat", "dog"}, {{"s.tar", index.shard_bytes, 1, "00000000"}}};
  folder_.Write("shards.json", description.ToJson());
  const auto set = ShardSet::Open(folder_.path());
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ((*set)->name(0), "renamed");
  EXPECT_EQ(Bytes(**set, 0), "AA");
  EXPECT_THAT((*set)->classes(), ElementsAre("cat", "dog"));

  description.classes = {"cat"};
  folder_.Write("shards.json", description.ToJson());
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("has images of label 1, but only 1 classes"));
  description.shards[0].bytes += 1;
  folder_.Write("shards.json", description.ToJson());
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("bytes, but shards.json says"));
}

TEST_F(ShardSetTest, ATarOfTarsOfClassesIsReadInPlace) {
  const std::string late = Tar({{"n02_7.JPEG", "seven"}, {"n02_5.JPEG", "five"}});
  const std::string early = Tar({{"n01_1.JPEG", "one"}, {"note.txt", "?"}});
  folder_.Write("train.tar", Tar({{"n02.tar", late}, {"n01.tar", early}}));
  const auto opened = ShardSet::Open(Path("train.tar"));
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const ShardSet& set = **opened;
  EXPECT_THAT(set.classes(), ElementsAre("n01", "n02"));
  ASSERT_EQ(set.size(), 3U);
  EXPECT_THAT((std::vector<std::string>{set.name(0), set.name(1), set.name(2)}),
              ElementsAre("n01/n01_1.JPEG", "n02/n02_7.JPEG", "n02/n02_5.JPEG"));
  EXPECT_THAT((std::vector<std::string>{Bytes(set, 0), Bytes(set, 1), Bytes(set, 2)}),
              ElementsAre("one", "seven", "five"));
  EXPECT_THAT((std::vector<int32_t>{set.label(0), set.label(1), set.label(2)}), ElementsAre(0, 1, 1));

  folder_.Write("bad.tar", Tar({{"n02.tar", late}, {"readme.txt", "?"}}));
  EXPECT_THAT(ErrorOf(Path("bad.tar")), HasSubstr("holds tars of classes, but 'readme.txt' is none"));
  folder_.Write("cut.tar", Tar({{"n02.tar", late.substr(0, 1300)}}));
  EXPECT_THAT(ErrorOf(Path("cut.tar")), HasSubstr("n02.tar in "));
}

TEST_F(ShardSetTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("has no shard (.tar, .rec"));
  EXPECT_THAT(ErrorOf(Path("x-*.tar")), HasSubstr("no file is named like"));
  EXPECT_THAT(ErrorOf(Path("x-{0..1.tar")), HasSubstr("has a { without a }"));
  EXPECT_THAT(ErrorOf(Path("x-{5..1}.tar")), HasSubstr("'{5..1}' is no range of numbers"));
  EXPECT_THAT(ErrorOf(Path("x-{0..9999999}.tar")), HasSubstr("more than 1000000 shards"));
  folder_.Write("a.tar", Tar({{"a.jpg", "A"}}));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("'a.jpg' has no label"));
  folder_.Write("a.tar", Tar({{"a.jpg", "A"}, {"a.cls", "-1"}}));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("'a.jpg' has no label"));
  folder_.Write("a.tar", Tar({{"a.jpg", "A"}, {"a.cls", "2000000000"}}));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("label 2000000000; labels go to 999999 at most"));
  folder_.Write("a.tar", Tar({{"a.txt", "A"}}));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("no image in the 1 shards of"));
  for (const char* json :
       {"", "{}", "[]", R"({"format": "imgd-shards-1"})",
        R"({"format": "imgd-shards-1", "name": "x", "classes": [], "shards": [{"name": "../a",
                              "bytes": 1, "images": 1, "crc32c": ""}]})"}) {
    folder_.Write("shards.json", json);
    EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("does not describe a data set")) << json;
  }
}

TEST_F(ShardSetTest, AShardThatGotShorterIsAnErrorOfItsImage) {
  const auto tar = folder_.Write("s.tar", Tar({{"a.jpg", "AAAA"}, {"a.cls", "0"}}));
  const auto set = ShardSet::Open(folder_.path()).value();
  std::filesystem::resize_file(tar, 513);
  EXPECT_THAT(Bytes(*set, 0), HasSubstr("s.tar ends at byte 513, before byte 516"));
}

TEST(ShardIndex, IsReadAsItWasWritten) {
  const ShardIndex index{5000, {{"a", 512, 100, 3}, {"", 1024, 0, 0}, {std::string(300, 'k'), 4999, 1, 9}}};
  EXPECT_EQ(DecodeShardIndex(EncodeShardIndex(index), "x").value(), index);
}

TEST(ShardIndex, DamageIsFound) {
  const std::string good = EncodeShardIndex({5000, {{"a", 512, 100, 3}}});
  EXPECT_THAT(DecodeShardIndex("", "x.idx").error().message, HasSubstr("x.idx is no good shard index"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(DecodeShardIndex(bad, "x").has_value()) << i;
    EXPECT_FALSE(DecodeShardIndex(good.substr(0, i), "x").has_value()) << i;
  }
  EXPECT_THAT(DecodeShardIndex(EncodeShardIndex({600, {{"a", 512, 100, 3}}}), "x").error().message,
              HasSubstr("image 0 does not lie in the shard"));
}

}  // namespace
}  // namespace imgd::data
