#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/rate_line.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

CliResult RunLook(std::vector<std::string> arguments) { return RunCli({.arguments = std::move(arguments)}); }

/// Two classes of four and one images, as a folder ("set") and as shards ("shards").
class LookAtDataset : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + fmt::format("imgcli-look-{}", ::getpid());
    ASSERT_EQ(RunLook({"dataset", "synth", "--classes", "2", "--per-class", "4", "--size", "16x16", "--jobs",
                       "1", root_})
                  .exit_code,
              0);
    ASSERT_EQ(
        RunLook({"dataset", "convert", "--shards", "2", "--jobs", "1", root_ + "/train", root_ + "/shards"})
            .exit_code,
        0);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string root_;
};

TEST_F(LookAtDataset, AGoodSetIsSaidToBeGood) {
  const auto done = RunLook({"dataset", "verify", "--decode", "--jobs", "2", root_ + "/shards"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("/shards: 8 images in 2 classes, 4 of each\n  2 shards, "),
                              HasSubstr("2 checksums compared, 2 indexes compared\n  8 images decoded\n"
                                        "nothing is broken\n")));
  // A folder with train/ and val/ is both.
  EXPECT_THAT(
      RunLook({"dataset", "verify", root_}).out,
      AllOf(HasSubstr("/train: 8 images"), HasSubstr("/val: 2 images"), HasSubstr("were not decoded")));
}

TEST_F(LookAtDataset, WhatIsBrokenIsNamedAndEndsWithSix) {
  std::ofstream(root_ + "/train/cut.txt") << "no image, and no class";
  for (const auto& it : fs::directory_iterator(root_ + "/train")) {
    if (it.is_directory()) std::ofstream(it.path() / "x.jpg") << "junk";
  }
  const auto done = RunLook({"dataset", "verify", "--decode", root_ + "/train"});
  EXPECT_EQ(done.exit_code, 6);
  EXPECT_THAT(done.out, AllOf(HasSubstr("x.jpg: not a JPEG file"), HasSubstr("2 faults found\n")));
  const auto json =
      nlohmann::json::parse(RunLook({"dataset", "verify", root_ + "/train", "--decode", "-o", "json"}).out);
  EXPECT_EQ(json[0]["broken"], 2);
  EXPECT_EQ(json[0]["findings"].size(), 2U);
  EXPECT_EQ(RunLook({"dataset", "verify", root_ + "/none"}).exit_code, 3);
}

TEST_F(LookAtDataset, WarningsAreShownApartAndAreNoFault) {
  for (const auto& it : fs::recursive_directory_iterator(root_ + "/train")) {
    if (!it.is_regular_file()) continue;
    std::fstream file(it.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::string content((std::istreambuf_iterator<char>(file)), {});
    content.insert(20, "stray");  // behind the first segment
    file.seekp(0);
    file << content;
    break;
  }
  const auto done = RunLook({"dataset", "verify", "--decode", root_ + "/train"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("1 image decoded with warnings, which is no fault:\n  /"),
                              HasSubstr(": Corrupt JPEG data: 5 extraneous bytes before marker 0xdb\n"),
                              HasSubstr("nothing is broken\n")));
  const auto json =
      nlohmann::json::parse(RunLook({"dataset", "verify", root_ + "/train", "--decode", "-o", "json"}).out);
  EXPECT_EQ(json[0]["doubtful"], 1);
  EXPECT_EQ(json[0]["warnings"].size(), 1U);
  EXPECT_EQ(json[0]["broken"], 0);
}

TEST_F(LookAtDataset, StatisticsAndContentsAreShown) {
  EXPECT_THAT(RunLook({"dataset", "stats", root_ + "/shards"}).out,
              AllOf(HasSubstr("8 images in 2 classes"), HasSubstr("JPEG quality"),
                    HasSubstr("colours      YCbCr 8")));
  const auto stats =
      nlohmann::json::parse(RunLook({"dataset", "stats", root_ + "/shards", "-o", "json"}).out);
  EXPECT_EQ(stats[0]["width"]["median"], 16);
  const auto shard = RunLook({"dataset", "inspect", "--limit", "3", root_ + "/shards/train-000000.tar"});
  EXPECT_THAT(shard.out, AllOf(HasSubstr("WebDataset, 4 images"), HasSubstr("16x16  JPEG YCbCr"),
                               HasSubstr("and 1 more")));
  EXPECT_THAT(RunLook({"dataset", "inspect", root_ + "/shards"}).out,
              HasSubstr("set 'train' of 2 shards, 8 images"));
  const auto index = nlohmann::json::parse(
      RunLook({"dataset", "inspect", root_ + "/shards/train-000000.tar.idx", "-o", "json"}).out);
  EXPECT_EQ(index["entries"].size(), 4U);
  const auto folder = RunLook({"dataset", "inspect", root_ + "/train"});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_THAT(folder.err, HasSubstr("is a folder without shards.json (name one of its shards)"));
}

TEST_F(LookAtDataset, BrokenDataAreBadInputAndNoFaultOfOurs) {
  fs::create_directories(root_ + "/bad");
  std::ofstream(root_ + "/bad/a.tar") << std::string(2000, 'x');
  for (const std::string command : {"info", "stats", "convert"}) {
    std::vector<std::string> words = {"dataset", command, root_ + "/bad"};
    if (command == "convert") words.push_back(root_ + "/out");
    const auto done = RunLook(words);
    EXPECT_EQ(done.exit_code, 2) << command;
    EXPECT_THAT(done.err, HasSubstr("a.tar is no good tar archive")) << command;
  }
  EXPECT_EQ(RunLook({"dataset", "inspect", root_ + "/bad/a.tar"}).exit_code, 2);
  EXPECT_EQ(RunLook({"dataset", "verify", root_ + "/bad"}).exit_code, 6);
}

TEST(InterruptScope, ItsActionMayEndTheProcessByTheSignal) {
  Interrupt interrupt;
  int code = 0;
  const Interrupt::Scope scope(interrupt, [&] { code = interrupt.ExitCode(); });
  interrupt.Trigger(SIGTERM);
  EXPECT_EQ(code, 128 + SIGTERM);
}

TEST(RateText, HasRateAndTimeLeftOnceTheyAreKnown) {
  EXPECT_EQ(RateText("decoding", RateLine::Unit::kImages, 10, 100, 0.1), "decoding 10 of 100 images");
  EXPECT_EQ(RateText("decoding", RateLine::Unit::kImages, 50, 100, 5),
            "decoding 50 of 100 images, 10.0 images/s, 5s left");
  EXPECT_EQ(RateText("checking", RateLine::Unit::kBytes, 2048, 2048, 1),
            "checking 2.00 KiB of 2.00 KiB, 2.00 KiB/s");
}

}  // namespace
}  // namespace imgd::cli
