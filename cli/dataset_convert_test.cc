#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "cli/progress_line.h"
#include "cli/testing/run_cli.h"

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

TEST(ProgressText, HasABarRatesAndTheTimeLeft) {
  EXPECT_EQ(ProgressText("writing", 50, 200, 25, 3.5e6, false),
            "writing ##........ 50/200 images, 25.0 images/s, 3.50 MB/s, 6s left");
  EXPECT_EQ(ProgressText("drawing", 0, 200, 0, 0, false), "drawing .......... 0/200 images");
  EXPECT_EQ(ProgressText("writing", 200, 200, 25, 0, false),
            "writing ########## 200/200 images, 25.0 images/s");
}

}  // namespace
}  // namespace imgd::cli
