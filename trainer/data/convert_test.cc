#include "trainer/data/convert.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <map>
#include <set>

#include "common/files.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

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
  // One image that can't be read any more stops it in the middle.
  const ImageFolder set = Set();
  const fs::path image = set.path(7);
  const auto stopped = WriteShards(set, {.shards = 5}, Out("out"), [&](const ConvertState& state) {
    if (state.done == 1) fs::rename(image, folder_.path() / "away");
    return true;
  });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_THAT(stopped.error().message, HasSubstr(image.string()));
  EXPECT_FALSE(fs::exists(Out("out/shards.json")));
  EXPECT_THAT(ShardSet::Open(Out("out")).error().message, HasSubstr("holds a part of a data set"));
  EXPECT_THAT(OpenDataset(Out("out")).error().message, HasSubstr("holds a part of a data set"));
  for (const auto& [name, content] : Content(Out("out"))) EXPECT_FALSE(name.ends_with(".tmp")) << name;

  fs::rename(folder_.path() / "away", image);
  EXPECT_THAT(WriteShards(set, {.shards = 5, .seed = 9}, Out("out")).error().message,
              HasSubstr("holds a part of another conversion"));
  const auto rest = WriteShards(set, {.shards = 5}, Out("out"));
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  EXPECT_EQ(Content(Out("out")), Content(Out("whole")));
}

TEST_F(ConvertTest, AFinishedOneIsThereAlready) {
  std::string plan;
  const auto first = WriteShards(Set(), {.shards = 3}, Out("out"), [&](const ConvertState&) {
    if (plan.empty() && fs::exists(Out("out/.convert.json")))
      plan = ReadFile(Out("out/.convert.json")).value();
    return true;
  });
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_FALSE(first->was_there);
  const auto content = Content(Out("out"));
  // What a kill in the last moment leaves, before and after the plan was taken away.
  for (const bool with_plan : {false, true}) {
    folder_.Write("out/.train-000001.tar.done", "{}");
    if (with_plan) folder_.Write("out/.convert.json", plan);
    const auto again = WriteShards(Set(), {.shards = 3, .jobs = 2}, Out("out"));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_TRUE(again->was_there);
    EXPECT_EQ(again->images, 30U);
    EXPECT_EQ(again->bytes, first->bytes);
    EXPECT_EQ(again->report, first->report);
    EXPECT_EQ(Content(Out("out")), content);
  }
  EXPECT_THAT(WriteShards(Set(), {.shards = 3, .seed = 1}, Out("out")).error().message,
              HasSubstr("is not empty: it holds a conversion of another set or with other options"));
  folder_.Write("out/train-000001.tar", "short");
  EXPECT_THAT(WriteShards(Set(), {.shards = 3}, Out("out")).error().message,
              HasSubstr("its train-000001.tar is missing or has another size"));
}

TEST_F(ConvertTest, OneWritesToAFolderAtATime) {
  {
    const auto other = OutputFolder::Lock(Out("deep/out")).value();
    const auto refused = WriteShards(Set(), {}, Out("deep/out"));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyExists);
    EXPECT_THAT(refused.error().message, HasSubstr("another conversion is writing to"));
  }
  EXPECT_FALSE(fs::exists(Out("deep"))) << "what was made for the lock alone goes with it";
  ASSERT_TRUE(WriteShards(Set(), {}, Out("deep/out")));
  EXPECT_FALSE(fs::exists(Out("deep/out/.convert.lock")));
}

TEST_F(ConvertTest, WhatIsNoPlainFileIsLeftOut) {
  fs::create_symlink("nowhere.jpg", folder_.path() / "set/c0/link.jpg");
  ASSERT_EQ(::mkfifo((folder_.path() / "set/c1/fifo.jpg").c_str(), 0600), 0);
  for (const uint64_t shards : {0U, 3U}) {
    const std::string out = fmt::format("out{}", shards);
    const auto result = WriteShards(Set(), {.shards = shards}, Out(out));
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->images, 30U);
    const auto& entry = result->report.left_out.at("no_plain_file");
    EXPECT_EQ(entry.count, 2U);
    EXPECT_THAT(entry.names, testing::UnorderedElementsAre("c0/link.jpg: a link to a file that isn't there",
                                                           "c1/fifo.jpg: not a plain file"));
  }
  EXPECT_THAT(WriteShards(Set(), {.strict = true}, Out("strict")).error().message,
              HasSubstr("would have to be left out (no_plain_file)"));
}

/// Of the images that were read, those that were not announced before.
class Watched final : public Dataset {
 public:
  explicit Watched(const Dataset& set) : set_(set) {
    classes_ = set.classes();
    for (size_t i = 0; i < set.size(); ++i) labels_.push_back(set.label(i));
  }
  std::string name(size_t i) const override { return set_.name(i); }
  std::string place(size_t i) const override { return set_.place(i); }
  const std::vector<uint32_t>& shard_sizes() const override { return set_.shard_sizes(); }
  Result<uint64_t> FileBytes(size_t i) const override { return set_.FileBytes(i); }
  Status Read(size_t i, FileBuffer& out) const override {
    if (!announced_.contains(static_cast<uint32_t>(i))) ++surprises;
    return set_.Read(i, out);
  }
  void WillRead(std::span<const uint32_t> samples) const override {
    announced_.insert(samples.begin(), samples.end());
    most_at_once = std::max(most_at_once, samples.size());
  }
  mutable size_t surprises = 0;
  mutable size_t most_at_once = 0;

 private:
  const Dataset& set_;
  mutable std::set<uint32_t> announced_;
};

TEST_F(ConvertTest, WhatWillBeReadIsAnnounced) {
  const std::string image = WavesJpeg(16, 16);
  for (int i = 0; i < 400; ++i) folder_.Write(fmt::format("set/c{}/{:03}.jpg", i % 3, i), image);
  const auto set = Set();
  const Watched watched(set);
  ASSERT_TRUE(WriteShards(watched, {.shards = 2}, Out("out")));
  EXPECT_EQ(watched.surprises, 0U);
  EXPECT_LE(watched.most_at_once, 200U) << "not more than fits into memory";
}

TEST_F(ConvertTest, NamesThatFallTogetherAreKeptApart) {
  for (const char* name : {"x.1.jpg", "x_1.jpg", "y.jpeg", "y.jpg", "y.png", "y_jpg.jpg"})
    folder_.Write(fmt::format("set/c0/{}", name), WavesJpeg(40, 40));
  const auto result = WriteShards(Set(), {.shards = 2}, Out("out"));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_THAT(result->report.renamed.at("not_unique").names,
              testing::ElementsAre("c0/x_1.jpg: as c0/x_1_jpg.jpg", "c0/y.jpg: as c0/y_jpg.jpg",
                                   "c0/y.png: as c0/y_png.png", "c0/y_jpg.jpg: as c0/y_jpg_jpg.jpg"));
  EXPECT_THAT(ReadFile(Out("out/report.json")).value(), HasSubstr("c0/y.png: as c0/y_png.png"));
  const auto set = ShardSet::Open(Out("out")).value();
  std::set<std::string> names;
  for (size_t i = 0; i < set->size(); ++i) names.insert(set->name(i));
  EXPECT_EQ(names.size(), 36U);
  // In a folder the endings keep them apart.
  const auto folder = WriteShards(Set(), {.form = OutputForm::kImageFolder}, Out("folder"));
  ASSERT_TRUE(folder.has_value()) << folder.error().message;
  EXPECT_TRUE(folder->report.renamed.empty());
  EXPECT_TRUE(fs::exists(Out("folder/c0/y.png")));
}

TEST_F(ConvertTest, NamesThatLeadElsewhereAreCleaned) {
  const std::string image = WavesJpeg(40, 40);
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"../../etc/a", "/abs/b", "./c//d/../e", "..", "c/.hidden"})
    files.insert(files.end(), {{fmt::format("{}.jpg", name), image}, {fmt::format("{}.cls", name), "0"}});
  folder_.Write("bad/x.tar", Tar(files));
  for (const auto form : {OutputForm::kWebDataset, OutputForm::kTfRecord, OutputForm::kImageFolder}) {
    const std::string out(NameOf(form));
    const auto set = OpenDataset(Out("bad")).value();
    const auto result = WriteShards(*set, {.form = form}, Out(out));
    ASSERT_TRUE(result.has_value()) << out << ": " << result.error().message;
    EXPECT_GE(result->report.renamed.at("unsafe_path").count, 3U) << out;
    const auto written = OpenDataset(Out(out)).value();
    ASSERT_EQ(written->size(), set->size());
    for (size_t i = 0; i < written->size(); ++i) {
      const std::string name = "/" + written->name(i) + "/";
      EXPECT_FALSE(written->name(i).starts_with('/')) << name;
      EXPECT_EQ(name.find("/../"), std::string::npos) << name;
    }
  }
  EXPECT_TRUE(fs::exists(Out("imagefolder/0/etc/a.JPEG")));
}

TEST_F(ConvertTest, NamesMayBeLongerThanATarsField) {
  const std::string name = "c0/" + std::string(180, 'n');
  folder_.Write("set/" + name + ".jpg", WavesJpeg(40, 40));
  ASSERT_TRUE(WriteShards(Set(), {.shards = 1, .index = false}, Out("out")));
  const auto set = ShardSet::Open(Out("out")).value();
  ASSERT_EQ(set->size(), 31U);
  size_t found = 31;
  for (size_t i = 0; i < 31; ++i) found = set->name(i) == name ? i : found;
  ASSERT_LT(found, 31U);
  EXPECT_EQ(Bytes(*set, found), WavesJpeg(40, 40));
}

}  // namespace
}  // namespace imgd::data
