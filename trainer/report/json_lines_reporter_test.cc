#include "trainer/report/json_lines_reporter.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files.h"

namespace imgd::report {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class LateClock final : public Clock {
 public:
  Instant Now() const override { return {}; }
  WallTime Wall() const override { return {1'500'000}; }
};

class JsonLines : public testing::Test {
 protected:
  JsonLines() {
    std::string pattern = (fs::temp_directory_path() / "lines-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~JsonLines() override { fs::remove_all(folder_); }

  std::unique_ptr<Reporter> Open(uint64_t generation = 2) {
    return MakeJsonLinesReporter({folder_ / "logs", generation}, clock_,
                                 [this](const std::string& note) { notes_.push_back(note); });
  }
  std::string Content() const { return *ReadFile(folder_ / "logs" / "metrics.g2.jsonl"); }

  LateClock clock_;
  fs::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(JsonLines, HasAnObjectForEachReportOfFigures) {
  auto reporter = Open();
  reporter->On(Started{});
  EXPECT_FALSE(fs::exists(folder_ / "logs"));
  reporter->On(StepFigures{.step = 4,
                           .epoch = 0.5,
                           .loss = 1.25,
                           .penalty = 0.25,
                           .top1 = 0.5,
                           .learning_rate = 0.1,
                           .gradient_norm = 3,
                           .rank_images_per_second = 50,
                           .images_per_second = 100,
                           .input_wait_ratio = 0.25,
                           .times = {.steps = 2, .forward_seconds = 0.5, .backward_seconds = 1}});
  reporter->On(EpochFigures{.epoch = 1, .step = 8, .val_loss = 0.75, .val_top1 = 0.5, .val_top5 = 1});
  EXPECT_EQ(
      Content(),
      R"({"time":1.5,"generation":2,"step":4,"epoch":0.5,"train/loss":1.25,"train/final_loss":1.5,)"
      R"("train/top1":0.5,)"
      R"("train/learning_rate":0.1,"train/gradient_norm":3.0,"train/images_per_second":100.0,)"
      R"("train/rank_images_per_second":50.0,"train/input_wait":0.25,"time/input":0.0,)"
      R"("time/forward":0.25,"time/backward":0.5,"time/communication":0.0,"time/optimizer":0.0})"
      "\n"
      R"({"time":1.5,"generation":2,"step":8,"epoch":1.0,"val/loss":0.75,"val/top1":0.5,"val/top5":1.0})"
      "\n");
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(JsonLines, ANumberThatIsNoneIsNull) {
  Open()->On(EpochFigures{.val_loss = std::nan("")});
  EXPECT_TRUE(nlohmann::json::parse(Content())["val/loss"].is_null());
}

TEST_F(JsonLines, AFileGoesOnWithoutItsTornLine) {
  Open()->On(EpochFigures{.step = 1});
  const std::string before = Content();
  std::ofstream(folder_ / "logs" / "metrics.g2.jsonl", std::ios::app) << "{\"ti";
  Open()->On(EpochFigures{.step = 1});
  EXPECT_EQ(Content(), before + before);
}

TEST_F(JsonLines, AFolderThatCannotBeMadeIsNotedOnceAndTriedAgain) {
  std::ofstream(folder_ / "logs") << "a file";
  auto reporter = Open();
  reporter->On(EpochFigures{.step = 1});
  reporter->On(EpochFigures{.step = 2});
  reporter->On(Failed{});
  EXPECT_THAT(notes_, ElementsAre(testing::HasSubstr((folder_ / "logs").native())));
  fs::remove(folder_ / "logs");
  reporter->On(Finished{});
  const std::string content = Content();
  EXPECT_EQ(std::count(content.begin(), content.end(), '\n'), 2);
}

}  // namespace
}  // namespace imgd::report
