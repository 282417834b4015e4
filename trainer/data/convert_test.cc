#include "trainer/data/convert.h"

#include <gmock/gmock.h>

#include <map>

#include "common/files.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ConvertTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 30; ++i) {
      folder_.Write(fmt::format("set/c{}/a.{:02}.JPEG", i % 3, i), WavesJpeg(40 + i, 50 - i, {}, i));
    }
  }

  std::string Out(const std::string& name) const { return (folder_.path() / name).string(); }
  ImageFolder Set() const { return ImageFolder::Open(folder_.path() / "set").value(); }

  static std::string Bytes(const Dataset& set, size_t i) {
    FileBuffer buffer;
    EXPECT_TRUE(set.Read(i, buffer));
    return {buffer.bytes().begin(), buffer.bytes().end()};
  }

  /// Name and content of every file in the folder.
  static std::map<std::string, std::string> Content(const std::string& path) {
    std::map<std::string, std::string> files;
    for (const auto& file : fs::directory_iterator(path)) {
      files[file.path().filename()] = ReadFile(file.path()).value();
    }
    return files;
  }

  TempFolder folder_;
};

TEST_F(ConvertTest, EveryImageIsThereByteForByteWithItsLabel) {
  const auto result = WriteShards(Set(), {.name = "t", .shards = 4}, Out("out"));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->shards, 4U);
  EXPECT_EQ(result->images, 30U);
  const auto shards = ShardSet::Open(Out("out")).value();
  ASSERT_EQ(shards->size(), 30U);
  EXPECT_EQ(shards->classes(), Set().classes());
  std::map<std::string, std::pair<int32_t, std::string>> wanted;
  std::map<std::string, std::pair<int32_t, std::string>> found;
  for (size_t i = 0; i < 30; ++i) {
    std::string key = fs::path(Set().name(i)).replace_extension();
    std::ranges::replace(key, '.', '_');
    wanted[key] = {Set().label(i), Bytes(Set(), i)};
    found[shards->name(i)] = {shards->label(i), Bytes(*shards, i)};
  }
  EXPECT_EQ(found, wanted);
  EXPECT_FALSE(fs::exists(Out("out/.convert.json")));
}

TEST_F(ConvertTest, ShardsCanBeConvertedAgainAndNamedByAPattern) {
  ASSERT_TRUE(WriteShards(Set(), {.shards = 4}, Out("four")));
  const auto four = ShardSet::Open(Out("four")).value();
  const auto again = WriteShards(*four, {.shards = 2}, Out("two"));
  ASSERT_TRUE(again.has_value()) << again.error().message;
  const auto two = ShardSet::Open(Out("two/train-{000000..000001}.tar")).value();
  EXPECT_EQ(two->size(), 30U);
  EXPECT_EQ(two->classes(), Set().classes()) << "shards.json lies beside them";
  const auto half = ShardSet::Open(Out("two/train-000001.tar")).value();
  EXPECT_EQ(half->size(), 15U);
  EXPECT_EQ(half->classes(), Set().classes());
}

TEST_F(ConvertTest, TheIndexIsWhatTheHeadersSay) {
  ASSERT_TRUE(WriteShards(Set(), {.shards = 3}, Out("out")));
  for (int i = 0; i < 3; ++i) {
    const std::string path = Out(fmt::format("out/train-{:06}.tar", i));
    const auto source = OpenFileSource(path).value();
    auto stored = DecodeShardIndex(ReadFile(path + ".idx").value(), path).value();
    for (auto& image : stored.images) image.width = image.height = 0;  // the headers don't say
    EXPECT_EQ(ScanWebDatasetShard(*source).value(), stored);
  }
}

TEST_F(ConvertTest, JobsDoNotChangeAByteTheSeedDoes) {
  ASSERT_TRUE(WriteShards(Set(), {.shard_bytes = 20000}, Out("one")));
  ASSERT_TRUE(WriteShards(Set(), {.shard_bytes = 20000, .jobs = 5}, Out("five")));
  ASSERT_TRUE(WriteShards(Set(), {.shard_bytes = 20000, .seed = 1}, Out("seed")));
  const auto content = Content(Out("one"));
  EXPECT_GT(content.size(), 4U);
  EXPECT_EQ(content, Content(Out("five")));
  EXPECT_NE(content, Content(Out("seed")));
}

TEST_F(ConvertTest, AnInterruptedRunIsGoneOnWith) {
  ASSERT_TRUE(WriteShards(Set(), {.shards = 5}, Out("whole")));
  // One image that can't be read stops it in the middle.
  const ImageFolder set = Set();
  const fs::path image = set.path(7);
  fs::rename(image, folder_.path() / "away");
  const auto stopped = WriteShards(set, {.shards = 5}, Out("out"));
  ASSERT_FALSE(stopped.has_value());
  EXPECT_THAT(stopped.error().message, HasSubstr(image.string()));
  EXPECT_FALSE(fs::exists(Out("out/shards.json")));
  EXPECT_THAT(ShardSet::Open(Out("out")).error().message, HasSubstr("holds a part of a data set"));
  EXPECT_THAT(OpenDataset(Out("out")).error().message, HasSubstr("holds a part of a data set"));
  for (const auto& [name, content] : Content(Out("out"))) EXPECT_FALSE(name.ends_with(".tmp")) << name;

  EXPECT_THAT(WriteShards(set, {.shards = 5, .seed = 9}, Out("out")).error().message,
              HasSubstr("holds a part of another conversion"));
  fs::rename(folder_.path() / "away", image);
  const auto rest = WriteShards(set, {.shards = 5}, Out("out"));
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  EXPECT_EQ(Content(Out("out")), Content(Out("whole")));
  EXPECT_THAT(WriteShards(set, {.shards = 5}, Out("out")).error().message, HasSubstr("is not empty"));
}

TEST_F(ConvertTest, RefusesTwoImagesOfOneName) {
  folder_.Write("set/c0/x.1.jpg", WavesJpeg(40, 40));
  folder_.Write("set/c0/x_1.jpg", WavesJpeg(40, 40));
  EXPECT_THAT(WriteShards(Set(), {}, Out("out")).error().message,
              HasSubstr("two images have the name 'c0/x_1'"));
}

}  // namespace
}  // namespace imgd::data
