#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/progress_line.h"
#include "cli/testing/run_cli.h"
#include "imgd/v1/trainer.pb.h"

namespace imgd::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A folder with three classes of drawn images, made once.
class DatasetConvert : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::path(testing::TempDir()) / fmt::format("imgd_convert_{}", ::getpid());
    fs::create_directories(root_);
    const auto drawn = RunCli({.arguments = {"dataset", "synth", "--classes", "3", "--per-class", "4",
                                             "--val-per-class", "2", "--size", "40x32", At("shapes")}});
    ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }
  static std::string At(const std::string& name) { return (root_ / name).string(); }

  static CliResult Convert(std::vector<std::string> options, const std::string& from, const std::string& to) {
    std::vector<std::string> arguments = {"dataset", "convert"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {At(from), At(to)});
    return RunCli({.arguments = arguments});
  }

  static fs::path root_;
};
fs::path DatasetConvert::root_;

TEST_F(DatasetConvert, TakesBothSplitsAndSaysWhatItDid) {
  const auto result = Convert({"--to", "tfrecord", "--shards", "2", "--resize", "24"}, "shapes", "tf");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tf/train: 12 images in 2 shards, "));
  EXPECT_THAT(result.out, HasSubstr("made smaller (short side 24 pixels): 12"));
  EXPECT_THAT(result.out, HasSubstr("labels in the records begin at 1"));
  EXPECT_TRUE(fs::exists(At("tf/train/train-00001-of-00002")));
  EXPECT_TRUE(fs::exists(At("tf/val/validation-00001-of-00002")));
  EXPECT_TRUE(fs::exists(At("tf/val/report.json")));
}

TEST_F(DatasetConvert, NamesAndClassesAreChosen) {
  const auto result =
      Convert({"--name", "small", "--classes", "c02-square-checker,c00-circle-plain", "--index", "none"},
              "shapes/train", "some");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("some: 8 images in 1 shard"));
  EXPECT_TRUE(fs::exists(At("some/small-000000.tar")));
  EXPECT_FALSE(fs::exists(At("some/small-000000.tar.idx")));
}

TEST_F(DatasetConvert, AnOptionWithoutEffectIsAnError) {
  struct Case {
    std::vector<std::string> options;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{"--to", "imagefolder", "--seed", "1"}, "--seed has no effect with --to imagefolder"},
      {{"--to", "imagefolder", "--shards", "1"}, "--shards has no effect with --to imagefolder"},
      {{"--to", "imagefolder", "--name", "x"}, "--name has no effect with --to imagefolder"},
      {{"--to", "imagefolder", "--index", "plain"}, "--index has no effect with --to imagefolder"},
      {{"--to", "tfrecord", "--index", "none"}, "--index has no effect with --to tfrecord"},
      {{"--label-offset", "0"}, "--label-offset has no effect with --to webdataset"},
      {{"--to", "recordio", "--boxes", "x"}, "--boxes has no effect with --to recordio"},
      {{"--shards", "2", "--shard-size", "1MB"}, "--shards and --shard-size exclude each other"},
      {{"--no-repair", "--quality", "80"}, "--quality has no effect"},
      {{"--no-repair", "--resize", "80"}, "--no-repair excludes it"},
      {{"--shard-size", "1XB"}, "found '1XB' where a size such as"},
      {{"--devkit", "x"}, "--devkit has an effect with ilsvrc2012 only"},
      {{"--classes", "c02-square-checker,nope"}, "has no class 'nope'; it has 3"},
      {{"--classes", ""}, "--classes: found '' where names with commas between"},
      {{"--name", "a/b"}, "'a/b' is no name for a set"},
      {{"--from", "tfrecord"}, "--from tfrecord: found imagefolder in"},
      {{"--label-offset", "2"}, "--label-offset"},
  };
  for (const auto& one : cases) {
    const auto result = Convert(one.options, "shapes/train", "refused");
    EXPECT_EQ(result.exit_code, 2) << one.message;
    EXPECT_THAT(result.err, HasSubstr(one.message));
  }
  EXPECT_FALSE(fs::exists(At("refused/shards.json")));
}

TEST_F(DatasetConvert, AllPartsAreLookedAtBeforeOneIsWritten) {
  fs::create_directories(At("uneven"));
  fs::copy(At("shapes/train"), At("uneven/train"), fs::copy_options::recursive);
  fs::copy(At("shapes/val"), At("uneven/validation"), fs::copy_options::recursive);
  fs::copy(At("uneven/validation/c00-circle-plain"), At("uneven/validation/more"));
  auto result = Convert({}, "uneven", "uneven-out");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has the class 'more', which the training part lacks"));
  EXPECT_FALSE(fs::exists(At("uneven-out/train")));
  fs::remove_all(At("uneven/validation/more"));
  result = Convert({}, "uneven", "uneven-out");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(At("uneven-out/val/val-000000.tar")));
}

TEST_F(DatasetConvert, WhatIsFinishedIsThereAlready) {
  ASSERT_EQ(Convert({"--shards", "2"}, "shapes", "again").exit_code, 0);
  // As if it had been killed in val, when train was done.
  fs::remove_all(At("again/val"));
  auto result = Convert({"--shards", "2"}, "shapes", "again");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("again/train: 12 images in 2 shards, .*was there already"));
  EXPECT_THAT(result.out, HasSubstr("again/val: 6 images in 2 shards"));
  result = Convert({"--shards", "2"}, "shapes", "again");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("again/val: 6 images in 2 shards, .*was there already"));
  EXPECT_EQ(Convert({"--shards", "3"}, "shapes", "again").exit_code, 5);
}

TEST_F(DatasetConvert, OutMustNotLieInSrc) {
  const auto result = Convert({}, "shapes", "shapes/out");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("which it is made from"));
  EXPECT_FALSE(fs::exists(At("shapes/out")));
}

/// What a conversion with these variables left in the folder for the agent.
std::vector<v1::TrainerEvent> EventsIn(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<v1::TrainerEvent> out;
  unsigned char head[4];
  while (file.read(reinterpret_cast<char*>(head), 4)) {
    std::string body(head[0] | head[1] << 8 | head[2] << 16, '\0');
    file.read(body.data(), static_cast<std::streamsize>(body.size()));
    EXPECT_TRUE(out.emplace_back().ParseFromString(body));
  }
  return out;
}

TEST_F(DatasetConvert, AJobOfImgdTellsHowFarItIsAndWhatItMade) {
  fs::create_directories(At("run"));
  fs::create_directories(At("dirty"));
  fs::copy(At("shapes"), At("dirty"), fs::copy_options::recursive);
  std::ofstream(At("dirty/train/c00-circle-plain/bad.jpg")) << "no picture";
  const auto result =
      RunCli({.arguments = {"dataset", "convert", "--verify", "--shards", "2", At("dirty"), At("told")},
              .env = {{"IMGD_RUN_DIR", At("run")}, {"LOCAL_RANK", "0"}}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing is broken"));
  const auto events = EventsIn(At("run/events.0"));
  ASSERT_GE(events.size(), 5u);
  uint64_t number = 0;
  std::vector<std::string> finished;
  for (const auto& event : events) {
    EXPECT_EQ(event.sequence(), ++number);
    const auto& progress = event.dataset_progress();
    if (progress.total() > 0 && progress.done() == progress.total())
      finished.push_back(progress.doing() + " " + progress.part());
  }
  EXPECT_THAT(finished,
              testing::IsSupersetOf({"writing train", "writing val", "verifying train", "verifying val"}));
  const auto& facts = events.back().dataset_facts();
  const auto& contents = facts.contents();
  ASSERT_EQ(contents.parts_size(), 2);
  EXPECT_EQ(contents.parts(0).images(), 12u);
  EXPECT_EQ(contents.parts(1).images(), 6u);
  EXPECT_EQ(contents.parts(1).classes(2).images(), 2u);
  EXPECT_EQ(contents.samples_size(), 18) << "all that there are";
  for (const auto& sample : contents.samples()) {
    EXPECT_TRUE(sample.picture().starts_with("\xFF\xD8\xFF")) << sample.name();
    EXPECT_EQ(sample.class_name(), contents.parts(0).classes(static_cast<int>(sample.label())).name());
  }
  EXPECT_EQ(contents.left_out(), 1u);
  EXPECT_THAT(contents.left_out_images(0).place(), HasSubstr("bad"));
  EXPECT_EQ(facts.verification().images(), 18u);
  EXPECT_EQ(facts.verification().checksums(), 4u);
  EXPECT_EQ(facts.verification().broken(), 0u);
}

TEST(ProgressText, HasABarRatesAndTheTimeLeft) {
  EXPECT_EQ(ProgressText("writing", 50, 200, 25, 3.5e6, false),
            "writing ##........ 50/200 images, 25.0 images/s, 3.50 MB/s, 6s left");
  EXPECT_EQ(ProgressText("drawing", 0, 200, 0, 0, false), "drawing .......... 0/200 images");
  EXPECT_EQ(ProgressText("writing", 200, 200, 25, 0, false),
            "writing ########## 200/200 images, 25.0 images/s");
}

}  // namespace
}  // namespace imgd::cli
