#include "trainer/data/shard_set.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>

#include "trainer/data/crc32c.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/random.h"
#include "trainer/data/restart_index.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_records.h"
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

TEST_F(ShardSetTest, WhatAMacAddsIsPassedOverAndCapitalsAreNot) {
  const std::string sample = Tar({{"._a.jpg", "?"}, {"a.jpg", "A"}, {"._a.cls", "?"}, {"a.CLS", "1"}});
  folder_.Write("s.tar", sample);
  const auto set = ShardSet::Open(Path("s.tar"));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ((*set)->name(0), "a");
  EXPECT_EQ((*set)->label(0), 1);
  EXPECT_THAT((*set)->notes(),
              ElementsAre(HasSubstr("names begin with a dot (as the ._* of macOS): 2 files")));
  const std::string inner = Tar({{"._n01_1.JPEG", "?"}, {"n01_1.JPEG", "one"}});
  folder_.Write("train.tar", Tar({{"._n01.tar", "?"}, {"n01.tar", inner}}));
  const auto classes = ShardSet::Open(Path("train.tar"));
  ASSERT_TRUE(classes.has_value()) << classes.error().message;
  EXPECT_THAT((*classes)->classes(), ElementsAre("n01"));
  EXPECT_EQ((*classes)->size(), 1U);
}

TEST_F(ShardSetTest, ImagesInFormsThatAreNotReadAreNamed) {
  folder_.Write("s.tar",
                Tar({{"a.Jpg", "A"}, {"a.cls", "0"}, {"b.webp", "B"}, {"b.cls", "0"}, {"c.TIF", "C"}}));
  const auto set = ShardSet::Open(Path("s.tar")).value();
  EXPECT_EQ(set->size(), 1U);
  EXPECT_THAT(set->notes(),
              ElementsAre(HasSubstr("only JPEG and PNG are read: 2 images, the first b.webp in ")));
}

TEST_F(ShardSetTest, ATarWithoutItsEndIsNotedAndAHoleInItIsAnError) {
  const std::string sample = TarMember("a.jpg", "A") + TarMember("a.cls", "0");
  folder_.Write("s.tar", sample);
  EXPECT_THAT(ShardSet::Open(Path("s.tar")).value()->notes(),
              ElementsAre(HasSubstr("1 of the tars end without the two blocks of zeros")));
  folder_.Write("s.tar",
                sample + std::string(1024, '\0') + TarMember("b.jpg", "B") + TarMember("b.cls", "0"));
  EXPECT_THAT(ErrorOf(Path("s.tar")),
              HasSubstr("s.tar is no good tar archive at byte 2048: the zeros that end"));
}

TEST_F(ShardSetTest, ShardsOfSeveralFormsAreRefused) {
  folder_.Write("train-000000.tar", Tar({{"a.jpg", "A"}, {"a.cls", "0"}}));
  folder_.Write("train-00000-of-00001", TfRecord(Example("AAA", 1)));
  for (const auto& where : {folder_.path().string(), Path("train-*")})
    EXPECT_THAT(ErrorOf(where), testing::AllOf(HasSubstr("train-00000-of-00001 is TFRecord"),
                                               HasSubstr("train-000000.tar is a tar")));
  EXPECT_EQ(ErrorOf(Path("train-*.tar")), "");
}

TEST_F(ShardSetTest, AFileMayHaveTheSignsOfPatternsInItsName) {
  for (const char* name : {"a[1].tar", "b{1.tar", "c{0..1}.tar"}) {
    folder_.Write(name, Tar({{"a.jpg", "A"}, {"a.cls", "0"}}));
    EXPECT_EQ(ErrorOf(Path(name)), "");
  }
}

TEST_F(ShardSetTest, AShardAmongClassFoldersIsNamed) {
  folder_.Write("stray.tar", Tar({{"a.txt", "A"}}));
  folder_.Write("cat/1.jpg", "x");
  EXPECT_THAT(ErrorOf(folder_.path()),
              HasSubstr("holds shards, as stray.tar, and folders of images, as cat; move those elsewhere"));
}

// An image that is left out because it is a link would be missed by nobody.
TEST_F(ShardSetTest, LinksAreRefusedWhereverTheyAre) {
  const std::string sample = Tar({{"a.jpg", "A"}, {"a.cls", "0"}});
  for (const char type : {'1', '2', '3'}) {
    folder_.Write("s.tar", TarMember("b.jpg", "", type) + sample);
    EXPECT_THAT(ErrorOf(Path("s.tar")), HasSubstr("s.tar is no good tar archive at byte 512: 'b.jpg' is a "));
    folder_.Write("s.tar", Tar({{"n01.tar", TarMember("b.jpg", "", type) + sample}}));
    EXPECT_THAT(ErrorOf(Path("s.tar")), HasSubstr("'b.jpg' is a "));
  }
}

TEST_F(ShardSetTest, NamesThatLeadElsewhereAreOnlyNames) {
  folder_.Write("s.tar",
                Tar({{"/etc/a.jpg", "A"}, {"/etc/a.cls", "0"}, {"../b.JPeG", "B"}, {"../b.cls", "1"}}));
  const auto set = ShardSet::Open(Path("s.tar")).value();
  ASSERT_EQ(set->size(), 2U);
  EXPECT_EQ(set->name(0), "/etc/a");
  EXPECT_EQ(set->name(1), "../b");
  EXPECT_EQ(Bytes(*set, 1), "B");
}

TEST_F(ShardSetTest, WordsOfTheDescriptionAreOneForEachClass) {
  const std::string tar = Tar({{"a.jpg", "A"}, {"a.cls", "1"}});
  folder_.Write("s.tar", tar);
  SetDescription description{"x", {"cat", "dog"}, {{"s.tar", tar.size(), 1, "00000000"}}};
  folder_.Write("shards.json", description.ToJson());
  EXPECT_TRUE(ShardSet::Open(folder_.path()).value()->class_words().empty());
  description.words = {"", "a dog"};
  folder_.Write("shards.json", description.ToJson());
  EXPECT_THAT(ShardSet::Open(folder_.path()).value()->class_words(), ElementsAre("", "a dog"));
  EXPECT_THAT(ShardSet::Open(Path("s.tar")).value()->class_words(), ElementsAre("", "a dog"));
  description.words = {"a dog"};
  folder_.Write("shards.json", description.ToJson());
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("\"words\" has not one text for each class"));
}

// One descriptor for each shard: more than a process may usually have open.
TEST_F(ShardSetTest, MoreShardsThanTheSoftLimitOfOpenFiles) {
  constexpr int kShards = 200;
  for (int i = 0; i < kShards; ++i)
    folder_.Write(fmt::format("s-{:03}.tar", i),
                  Tar({{fmt::format("{}.jpg", i), "A"}, {fmt::format("{}.cls", i), "0"}}));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    const auto set = ShardSet::Open(folder_.path());
    EXPECT_TRUE(set.has_value()) << set.error().message;
    if (set) {
      EXPECT_EQ((*set)->size(), 200U);
      EXPECT_EQ(Bytes(**set, 199), "A");
    }
  }
  rlimit after{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
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

TEST(ShardIndex, TheFormatBeforeIsReadToo) {
  std::string body = Raw(uint64_t{5000}) + Raw(uint32_t{2});
  body +=
      Raw(uint64_t{512}) + Raw(uint32_t{100}) + Raw(int32_t{3}) + Raw(uint32_t{0}) + Raw(uint16_t{1}) + "a";
  body +=
      Raw(uint64_t{1024}) + Raw(uint32_t{7}) + Raw(int32_t{0}) + Raw(uint32_t{24}) + Raw(uint16_t{3}) + "b/c";
  const auto with = [](const std::string& content) {
    return "imgdidx1" + Raw(Crc32c(AsBytes(content))) + content;
  };
  const ShardIndex wanted{5000, {{"a", 512, 100, 3, 0}, {"b/c", 1024, 7, 0, 24}}};
  EXPECT_EQ(DecodeShardIndex(with(body), "x").value(), wanted);
  for (const std::string& bad : {body + "x", body.substr(0, body.size() - 1)})
    EXPECT_THAT(DecodeShardIndex(with(bad), "x").error().message, HasSubstr("cut short or too long"));
}

TEST_F(ShardSetTest, RestartIntervalsAreThoseOfTheirImages) {
  const auto marked = AddRestartMarkers(AsBytes(WavesJpeg(300, 200))).value();
  ASSERT_FALSE(marked.index.empty());
  const auto size = static_cast<uint32_t>(marked.file.size());
  const std::string tar = Tar({{"a.jpg", marked.file}, {"b.jpg", marked.file}, {"c.jpg", marked.file}});
  const uint64_t step = (tar.size() - 1024) / 3;
  folder_.Write("s.tar", tar);
  folder_.Write("s.tar.idx",
                EncodeShardIndex({tar.size(),
                                  {{.key = "a", .offset = 512, .size = size},
                                   {.key = "b", .offset = 512 + step, .size = size, .restarts = marked.index},
                                   {.key = "c", .offset = 512 + 2 * step, .size = size}}}));
  const auto set = ShardSet::Open(folder_.path()).value();
  EXPECT_TRUE(set->restarts(0).empty());
  EXPECT_TRUE(std::ranges::equal(set->restarts(1), AsBytes(marked.index)));
  EXPECT_TRUE(set->restarts(2).empty());
}

// Those of a set take 64 MiB at most: of the second of these images they are looked for in the file.
TEST_F(ShardSetTest, MoreRestartIntervalsThanMemoryIsForAreLookedFor) {
  constexpr size_t kIntervals = 7 << 20;
  const std::string two("\x82\x80\x80\x80\0", 5);  // in as many bytes as there can be
  std::string many;
  for (size_t i = 0; i < kIntervals; ++i) many += two;
  const auto size = static_cast<uint32_t>(2 * kIntervals);
  const uint64_t bytes = 3 * uint64_t{size};
  std::filesystem::resize_file(folder_.Write("s.tar", ""), bytes);
  folder_.Write("s.tar.idx", EncodeShardIndex({bytes,
                                               {{.key = "a", .size = size, .restarts = many},
                                                {.key = "b", .offset = size, .size = size, .restarts = many},
                                                {.key = "c", .offset = 2 * uint64_t{size}, .size = size}}}));
  const auto set = ShardSet::Open(folder_.path()).value();
  EXPECT_EQ(set->restarts(0).size(), many.size());
  EXPECT_TRUE(std::ranges::equal(set->restarts(1), kFindRestarts));
  EXPECT_TRUE(set->restarts(2).empty());
}

class HostileRestarts : public ShardSetTest {
 protected:
  void SetUp() override {
    marked_ = AddRestartMarkers(AsBytes(WavesJpeg(300, 200))).value();
    tar_ = Tar({{"a.jpg", marked_.file}});
    folder_.Write("s.tar", tar_);
    pixels_ = PixelsOf({});
  }
  std::string ErrorWith(const std::string& restarts) {
    Write(restarts);
    return ErrorOf(folder_.path());
  }
  /// Of a crop, by an index that says so.
  std::string PixelsWith(const std::string& restarts) {
    Write(restarts);
    const auto set = ShardSet::Open(folder_.path());
    return set ? PixelsOf((*set)->restarts(0)) : set.error().message;
  }
  /// How long its intervals are.
  std::vector<uint32_t> Lengths() const {
    std::vector<uint32_t> lengths;
    for (auto rest = AsBytes(marked_.index); !rest.empty();) lengths.push_back(TakeVarint(rest).value());
    return lengths;
  }
  static std::string Packed(const std::vector<uint32_t>& lengths) {
    std::string out;
    for (const uint32_t length : lengths) out += Varint(length);
    return out;
  }

  RestartMarked marked_;
  std::string pixels_;

 private:
  void Write(const std::string& restarts) {
    folder_.Write("s.tar.idx", EncodeShardIndex({tar_.size(),
                                                 {{.key = "a",
                                                   .offset = 512,
                                                   .size = static_cast<uint32_t>(marked_.file.size()),
                                                   .restarts = restarts}}}));
  }
  std::string PixelsOf(RestartIndex restarts) {
    JpegDecoder decoder;
    const auto size = decoder.Open(AsBytes(marked_.file), restarts);
    if (!size) return size.error().message;
    const auto part = decoder.Decode({140, 90, 120, 80}, 2, 120, 80);
    if (!part) return part.error().message;
    std::string out;
    for (int y = 0; y < part->pixels.height; ++y)
      out.append(reinterpret_cast<const char*>(part->pixels.row(y)),
                 static_cast<size_t>(part->pixels.width) * 4);
    return out;
  }

  std::string tar_;
};

TEST_F(HostileRestarts, ThoseOutsideTheFileAreAnError) {
  auto lengths = Lengths();
  ASSERT_GT(lengths.size(), 8U);
  EXPECT_EQ(PixelsWith(Packed(lengths)), pixels_);
  const std::string outside = "the restart intervals of image 0 do not lie in its file";
  const auto size = static_cast<uint32_t>(marked_.file.size());
  for (const uint32_t length : {size + 1, size, UINT32_MAX, 0U, 1U}) {
    auto lying = lengths;
    lying.at(3) = length;
    EXPECT_THAT(ErrorWith(Packed(lying)), HasSubstr(outside)) << length;
  }
  EXPECT_THAT(ErrorWith("\xff\xff\xff\xff\xff\x01"), HasSubstr(outside));
  EXPECT_THAT(ErrorWith("\x80"), HasSubstr(outside));
  EXPECT_THAT(ErrorWith(std::string(1, '\0')), HasSubstr(outside)) << "as what stands for 'look for them'";
}

TEST_F(HostileRestarts, ThoseThatAreNotTheFilesChangeNoPixel) {
  const auto lengths = Lengths();
  const auto with = [&](auto change) {
    auto lying = lengths;
    change(lying);
    EXPECT_EQ(PixelsWith(Packed(lying)), pixels_);
  };
  for (const uint32_t off : {1U, UINT32_MAX}) {  // behind the marker's end, or within it
    with([&](auto& l) {
      l.at(2) += off;
      l.at(3) -= off;
    });
  }
  with([](auto& l) {  // one too few
    l.at(2) += l.at(3);
    l.erase(l.begin() + 3);
  });
  with([](auto& l) { l.insert(l.begin(), 2); });            // one too many, at the scan's start
  with([](auto& l) { l.push_back(2); });                    // one behind the last
  with([](auto& l) { std::ranges::reverse(l); });           // in another order
  with([](auto& l) { std::fill(l.begin(), l.end(), 2); });  // all at the start
  // To the ninth marker, which has the number of the first; then as many that are left.
  with([](auto& l) {
    for (int i = 0; i < 8; ++i) l.at(8) += l.at(static_cast<size_t>(i));
    l.erase(l.begin(), l.begin() + 8);
  });
  Random random(6, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 50; ++i) {
    with([&](auto& l) {
      for (auto& length : l) length = 2 + random.Below(length);
    });
  }
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
