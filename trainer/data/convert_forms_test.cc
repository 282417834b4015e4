// From every form to every form, read back by our own readers.
#include <gmock/gmock.h>

#include <map>

#include "common/files.h"
#include "trainer/data/convert.h"
#include "trainer/data/convert_source.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/image_name.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source_check.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct Item {
  int32_t label = 0;
  std::string class_name;
  std::string bytes;
  bool operator==(const Item&) const = default;
};

/// By name without ending and dots.
std::map<std::string, Item> ItemsOf(const Dataset& set) {
  std::map<std::string, Item> items;
  FileBuffer buffer;
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_TRUE(set.Read(i, buffer)) << set.place(i);
    const int32_t label = set.label(i);
    std::string key(WithoutImageEnding(set.name(i)));
    std::ranges::replace(key, '.', '_');
    const auto bytes = buffer.bytes();
    items[key] = {label, set.classes()[static_cast<size_t>(label)], {bytes.begin(), bytes.end()}};
  }
  return items;
}

std::map<std::string, std::string> ContentOf(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& file : fs::recursive_directory_iterator(path)) {
    if (file.is_regular_file()) files[fs::relative(file.path(), path)] = ReadFile(file.path()).value();
  }
  return files;
}

class FormsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 14; ++i) {
      folder_.Write(fmt::format("set/c{}/a.{:02}.JPEG", i % 3 + i % 3 / 2, i),
                    WavesJpeg(40 + i, 50 - i, {}, i));
    }
    folder_.Write("set/c2/.empty", "");
    // Where RecordIO has to cut: the comment's content lies at a whole word of the record.
    std::string jpeg = WavesJpeg(33, 44);
    jpeg.insert(2, std::string("\xff\xfe\x00\x0c##\x0a\x23\xd7\xce\x0a\x23\xd7\xce", 14));
    folder_.Write("set/c3/magic.JPEG", jpeg);
  }
  std::string Out(const std::string& name) const { return (folder_.path() / name).string(); }
  std::unique_ptr<Dataset> Open(const std::string& name) const {
    auto set = OpenDataset(Out(name));
    EXPECT_TRUE(set.has_value()) << set.error().message;
    return std::move(*set);
  }
  TempFolder folder_;
};

class EveryPair : public FormsTest, public testing::WithParamInterface<std::tuple<OutputForm, OutputForm>> {};

TEST_P(EveryPair, KeepsLabelsClassesNamesAndBytes) {
  const auto [first, second] = GetParam();
  const auto source = Open("set");
  ASSERT_EQ(source->classes().size(), 4U);
  const auto wanted = ItemsOf(*source);
  ASSERT_EQ(wanted.size(), 15U);
  std::string from = "set";
  for (const auto& [form, to] : {std::pair(first, "one"), std::pair(second, "two")}) {
    const uint64_t shards = form == OutputForm::kImageFolder ? 0U : 3U;
    const auto written = WriteShards(*Open(from), {.shards = shards, .jobs = 2, .form = form}, Out(to));
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(written->images, 15U);
    const auto set = Open(to);
    EXPECT_EQ(set->classes(), source->classes());
    EXPECT_EQ(ItemsOf(*set), wanted);
    const auto found = FindSource(Out(to), std::nullopt);
    EXPECT_EQ(NameOf(*found->form), NameOf(form));
    from = to;
  }
}

constexpr auto kForms = {OutputForm::kWebDataset, OutputForm::kTfRecord, OutputForm::kRecordIo,
                         OutputForm::kImageFolder};
INSTANTIATE_TEST_SUITE_P(Forms, EveryPair,
                         testing::Combine(testing::ValuesIn(kForms), testing::ValuesIn(kForms)),
                         [](const auto& info) {
                           return fmt::format("{}_to_{}", NameOf(std::get<0>(info.param)),
                                              NameOf(std::get<1>(info.param)));
                         });

class EveryForm : public FormsTest, public testing::WithParamInterface<OutputForm> {
 protected:
  ConvertOptions Options(int jobs) const {
    const bool folder = GetParam() == OutputForm::kImageFolder;
    return {.shards = folder ? 0U : 5U, .jobs = jobs, .form = GetParam(), .images = {.resize = 40}};
  }
};

TEST_P(EveryForm, JobsDoNotChangeAByte) {
  const auto set = Open("set");
  ASSERT_TRUE(WriteShards(*set, Options(1), Out("one")));
  ASSERT_TRUE(WriteShards(*set, Options(3), Out("three")));
  EXPECT_EQ(ContentOf(Out("one")), ContentOf(Out("three")));
}

TEST_P(EveryForm, WhatWasBrokenOffIsGoneOnWith) {
  const auto set = Open("set");
  ASSERT_TRUE(WriteShards(*set, Options(1), Out("whole")));
  for (const uint64_t limit : {0U, 4U, 11U}) {
    const auto stopped = WriteShards(*set, Options(1), Out("out"),
                                     [&](const ConvertState& state) { return state.done <= limit; });
    ASSERT_FALSE(stopped.has_value());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_THAT(stopped.error().message, HasSubstr("the same command goes on with it"));
    EXPECT_FALSE(OpenDataset(Out("out")).has_value());
  }
  // Files that a kill left behind.
  folder_.Write("out/train-000004.tar.tmp", "half");
  folder_.Write("out/train-000001.tar.idx.tmp.4711", "half");
  const auto rest = WriteShards(*set, Options(2), Out("out"));
  ASSERT_TRUE(rest.has_value()) << rest.error().message;
  EXPECT_GE(rest->kept, GetParam() == OutputForm::kImageFolder ? 0U : 2U);
  EXPECT_EQ(ContentOf(Out("out")), ContentOf(Out("whole")));
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_F(FormsTest, TfRecordLabelsComeBackWhereTheyBegan) {
  const auto set = Open("set");
  for (const int32_t first : {0, 1}) {
    const std::string out = fmt::format("from{}", first);
    // Without class 0 the labels alone would not show that they begin at 0.
    auto some = OpenPart({.parts = {}}, {.where = Out("set")}, {.classes = {"c0", "c1"}}).value();
    ASSERT_TRUE(WriteShards(*some, {.form = OutputForm::kTfRecord, .first_label = first}, Out(out)));
    EXPECT_EQ(ItemsOf(*Open(out)), ItemsOf(*some));
    EXPECT_THAT(ReadFile(Out(out + "/report.json")).value(),
                HasSubstr(fmt::format("labels in the records begin at {}", first)));
  }
}

TEST_F(FormsTest, DirtyImagesAreRepairedOrLeftOutAndReported) {
  const std::string cmyk = WavesJpeg(30, 30, {.components = 4});
  folder_.Write("set/c0/cmyk.JPEG", cmyk);
  folder_.Write("set/c0/text.JPEG", "not an image");
  const std::string good = WavesJpeg(90, 90);
  folder_.Write("set/c1/cut.JPEG", good.substr(0, good.size() / 2));
  const auto set = Open("set");
  const auto result = WriteShards(*set, {.shards = 2}, Out("out"));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->images, 16U);
  EXPECT_EQ(result->report.repaired.at("cmyk").names, std::vector<std::string>{"c0/cmyk.JPEG"});
  EXPECT_EQ(result->report.left_out.at("truncated").count, 1U);
  EXPECT_THAT(result->report.left_out.at("undecodable").names.at(0),
              HasSubstr("c0/text.JPEG: not a JPEG file"));
  EXPECT_EQ(ItemsOf(*Open("out")).size(), 16U);
  const std::string report = ReadFile(Out("out/report.json")).value();
  EXPECT_THAT(report, HasSubstr("c1/cut.JPEG"));
  EXPECT_THAT(report, HasSubstr("\"written\": 16"));

  const auto strict = WriteShards(*set, {.shards = 2, .strict = true}, Out("strict"));
  ASSERT_FALSE(strict.has_value());
  EXPECT_THAT(strict.error().message, HasSubstr("would have to be left out"));

  ASSERT_TRUE(WriteShards(*set, {.shards = 2, .images = {.repair = false}}, Out("dirty")));
  EXPECT_EQ(ItemsOf(*Open("dirty")), ItemsOf(*set));
}

TEST_F(FormsTest, WrongChecksumsOfTheSourceAreTold) {
  ASSERT_TRUE(WriteShards(*Open("set"), {.shards = 1, .form = OutputForm::kTfRecord}, Out("tf")));
  const std::string path = Out("tf/train-00000-of-00001");
  std::string bytes = ReadFile(path).value();
  const size_t place = bytes.find("Adobe") != std::string::npos ? bytes.find("Adobe") : bytes.find("JFIF");
  bytes[place] ^= 1;  // in a record's image, where the decoder doesn't mind
  folder_.Write("tf/train-00000-of-00001", bytes);
  const auto result = WriteShards(*Open("tf"), {.shards = 1}, Out("out"));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->report.checksums.count, 2U);
  EXPECT_THAT(result->report.checksums.names[0], HasSubstr("train-00000-of-00001: the record at byte 0"));
  EXPECT_THAT(result->report.checksums.names[1], HasSubstr("the whole file, by shards.json"));
  EXPECT_THAT(WriteShards(*Open("tf"), {.strict = true}, Out("strict")).error().message,
              HasSubstr("2 of the source's checksums are wrong"));
}

TEST_F(FormsTest, BoxesOfTheSourceAreTakenAlongOrTold) {
  const auto given = [](std::string_view name) {
    if (!name.starts_with("c1/")) return std::vector<ObjectBox>();
    return std::vector<ObjectBox>{{0, 0.25F, 0.5F, 1, 2}, {0.1F, 0.2F, 0.3F, 0.4F, -1}};
  };
  const ConvertOptions options{.shards = 2, .form = OutputForm::kTfRecord, .boxes = given, .boxes_id = "1"};
  const auto first = WriteShards(*Open("set"), options, Out("one"));
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_THAT(first->remarks, testing::Contains("boxes: 5 of 15 images have any"));
  // Labels begin at 0 there, and the set has one class less.
  const auto some = OpenPart({.parts = {}}, {.where = Out("one")}, {.classes = {"c1", "c3"}}).value();
  const auto second =
      WriteShards(*some, {.shards = 1, .form = OutputForm::kTfRecord, .first_label = 0}, Out("two"));
  ASSERT_TRUE(second.has_value()) << second.error().message;
  EXPECT_THAT(second->remarks, testing::Contains("boxes of 5 images were taken from the source"));
  const auto two = ShardSet::Open(Out("two")).value();
  const auto seen = CheckChecksums(*two, 1, [](uint64_t, uint64_t) { return true; }).value();
  ASSERT_EQ(seen.boxes.size(), 5U);
  for (const auto& [image, boxes] : seen.boxes) {
    EXPECT_TRUE(two->name(image).starts_with("c1/"));
    EXPECT_THAT(boxes, testing::ElementsAre(ObjectBox{0, 0.25F, 0.5F, 1, 0},  // c2 is gone: the image's own
                                            ObjectBox{0.1F, 0.2F, 0.3F, 0.4F, 0}));
  }
  const auto rec = WriteShards(*Open("one"), {.shards = 1, .form = OutputForm::kRecordIo}, Out("rec"));
  EXPECT_THAT(rec->remarks,
              testing::Contains("boxes of 5 images in the source are left out: recordio can't hold them"));
}

TEST_F(FormsTest, OtherBoxesAreAnotherConversion) {
  ConvertOptions options{.shards = 3, .form = OutputForm::kTfRecord};
  options.boxes = [](std::string_view) { return std::vector<ObjectBox>(); };
  options.boxes_id = "a.tgz 7 01234567";
  ASSERT_FALSE(
      WriteShards(*Open("set"), options, Out("out"), [](const ConvertState& s) { return s.done < 7; }));
  options.boxes_id = "b.tgz 7 01234567";
  EXPECT_THAT(WriteShards(*Open("set"), options, Out("out")).error().message,
              HasSubstr("holds a part of another conversion"));
}

TEST_F(FormsTest, RefusesNamesThatAreNone) {
  for (const char* name : {"", "a/b", "..", "-x", "a b", "a\n"}) {
    EXPECT_THAT(WriteShards(*Open("set"), {.name = name}, Out("out")).error().message,
                HasSubstr("is no name for a set"));
  }
}

}  // namespace
}  // namespace imgd::data
