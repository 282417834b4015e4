#include "trainer/report/run_dir_reporter.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <thread>

#include "common/files.h"
#include "imgd/v1/trainer.pb.h"
#include "trainer/report/event_of.h"

namespace imgd::report {
namespace {

namespace fs = std::filesystem;

class RunDir : public testing::Test {
 protected:
  RunDir() {
    std::string pattern = (fs::temp_directory_path() / "run-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RunDir() override { fs::remove_all(folder_); }

  std::unique_ptr<Reporter> Open() { return std::move(*MakeRunDirReporter(folder_, 1, clock_)); }

  std::vector<v1::TrainerEvent> Written() const {
    std::vector<v1::TrainerEvent> events;
    const std::string content = *ReadFile(folder_ / "events.1");
    size_t at = 0;
    while (at < content.size()) {
      const auto length = static_cast<size_t>(static_cast<unsigned char>(content[at])) +
                          (static_cast<size_t>(static_cast<unsigned char>(content[at + 1])) << 8);
      events.emplace_back();
      EXPECT_TRUE(events.back().ParseFromString(content.substr(at + 4, length)));
      at += 4 + length;
    }
    return events;
  }

  SystemClock clock_;
  fs::path folder_;
};

TEST_F(RunDir, NamesOfFilesNeedNotBeUtf8) {
  auto reporter = Open();
  reporter->On(BadImage{.path = "caf\xE9.jpg", .error = "\xFF", .count = 1});
  reporter->On(Failed{.message = "cannot read caf\xE9"});
  const auto events = Written();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].bad_image().path(), "caf\xEF\xBF\xBD.jpg");
  EXPECT_EQ(events[0].bad_image().error(), "\xEF\xBF\xBD");
  EXPECT_EQ(events[1].failed().message(), "cannot read caf\xEF\xBF\xBD");
}

TEST_F(RunDir, EventsCarryWhatWasReported) {
  auto reporter = Open();
  reporter->On(Started{.world_size = 2,
                       .device = "cpu",
                       .start_step = 3,
                       .total_steps = 9,
                       .trial = Trial{.bytes = 1000, .seconds = 0.5, .ranks = 2, .nodes = 2}});
  reporter->On(StepFigures{.step = 4,
                           .loss = 1.5,
                           .images_per_second = 100,
                           .loader = {.workers = 3, .images = 96, .images_left_to_cpu = 4},
                           .times = {.steps = 7, .communication_seconds = 0.25},
                           .ranks = {.ranks = 2, .own_most = 0.5, .slowest_rank = 1}});
  reporter->On(EpochFigures{.epoch = 1, .val_top1 = 0.5, .val_images = 37});
  reporter->On(CheckpointFigures{.path = "/c/g1/step4", .step = 4, .generation = 1});
  reporter->On(BadImage{.path = "a/b.jpg", .error = "truncated", .count = 1});
  reporter->On(Failed{.message = "no", .bad_input = true});
  reporter->On(Finished{.step = 9});
  const auto events = Written();
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[0].started().world_size(), 2U);
  EXPECT_GT(events[0].started().pid(), 0);
  EXPECT_EQ(events[0].started().trial().bytes_per_second(), 2000);
  EXPECT_EQ(events[0].started().trial().nodes(), 2U);
  EXPECT_GT(events[0].time_us(), 0);
  EXPECT_EQ(events[1].step().loss(), 1.5);
  EXPECT_EQ(events[1].step().loader().workers(), 3U);
  EXPECT_EQ(events[1].step().loader().images(), 96U);
  EXPECT_EQ(events[1].step().loader().images_left_to_cpu(), 4U);
  EXPECT_EQ(events[1].step().times().steps(), 7U);
  EXPECT_EQ(events[1].step().times().communication_seconds(), 0.25);
  EXPECT_EQ(events[1].step().ranks().slowest_rank(), 1U);
  EXPECT_EQ(events[1].step().ranks().own_most_seconds(), 0.5);
  EXPECT_EQ(events[2].epoch().val_images(), 37U);
  EXPECT_EQ(events[3].checkpoint().path(), "/c/g1/step4");
  EXPECT_EQ(events[4].bad_image().path(), "a/b.jpg");
  EXPECT_TRUE(events[5].failed().bad_input());
  EXPECT_EQ(events[6].finished().step(), 9U);
}

TEST_F(RunDir, FiguresOfClassesAreAnEventOfABoundedSize) {
  ClassFigures pets{.step = 500,
                    .epoch = 2,
                    .names = {"cat", "dog", "bird"},
                    .counts = {{4, 4, 4}, {3, 1, 2}, {0, 0, 0}},
                    .confusion = {4, 0, 0, 2, 1, 0, 0, 0, 0},
                    .worst = {{"dog/7.jpg", 1, 0, 0.9, 3.5}}};
  ClassFigures many{.names = std::vector<std::string>(21841, std::string(500, 'n'))};
  for (uint64_t i = 0; i < many.names.size(); ++i) many.counts.push_back({50, i % 50, 50});
  for (uint32_t i = 0; i < ClassFigures::kMostWorst; ++i)
    many.worst.push_back({std::string(4000, 'w'), i, i, 0.9, 3.5});
  auto reporter = Open();
  reporter->On(pets);
  const auto events = Written();
  ASSERT_EQ(events.size(), 1U);
  const auto& classes = events[0].classes();
  EXPECT_EQ(classes.step(), 500U);
  EXPECT_EQ(classes.class_count(), 3U);
  ASSERT_EQ(classes.classes_size(), 2) << "a class without images has no accuracy";
  EXPECT_EQ(classes.classes(1).name(), "dog");
  EXPECT_EQ(classes.classes(1).top1(), 1U);
  EXPECT_EQ(classes.mistakes(0).answer(), "cat");
  EXPECT_EQ(classes.confusion_size(), 9);
  EXPECT_EQ(classes.worst(0).class_name(), "dog");
  const auto large = EventOf(many);
  EXPECT_EQ(large.classes().classes_size(), 2000);
  EXPECT_EQ(large.classes().confusion_size(), 0);
  EXPECT_LT(large.ByteSizeLong(), 256U << 10);
}

TEST_F(RunDir, ImagesForPeopleAreAnEventWithTheirPictures) {
  ShownImages shown{.step = 500, .epoch = 2};
  shown.images.push_back({.image = {"dog/7.jpg", 1, 0, 0.9, 3.5}, .class_name = "dog", .answer = "cat"});
  shown.images.push_back({.image = {"cat/1.jpg", 0, 0, 0.8, 0.2},
                          .class_name = "cat",
                          .answer = "cat",
                          .worst = true,
                          .picture = std::string("\xFF\xD8\xFF\0", 4)});
  Open()->On(shown);
  const auto events = Written();
  ASSERT_EQ(events.size(), 1U);
  const auto& samples = events[0].samples();
  EXPECT_EQ(samples.step(), 500U);
  ASSERT_EQ(samples.images_size(), 2);
  EXPECT_EQ(samples.images(0).answer(), "cat");
  EXPECT_FALSE(samples.images(0).right());
  EXPECT_TRUE(samples.images(1).right());
  EXPECT_TRUE(samples.images(1).worst());
  EXPECT_EQ(samples.images(1).picture().size(), 4U);
}

TEST_F(RunDir, NumbersGoOnWhereTheFileEndsThoughItsEndWasTorn) {
  Open()->On(Finished{});
  Open()->On(Finished{});
  std::ofstream(folder_ / "events.1", std::ios::app) << "\x07";
  Open()->On(Finished{});
  const auto events = Written();
  ASSERT_EQ(events.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].sequence(), i + 1);
}

TEST_F(RunDir, ManyThreadsLeaveWholeEventsWithoutGaps) {
  auto reporter = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) reporter->On(BadImage{.path = "x", .error = "y"});
    });
  }
  for (auto& thread : threads) thread.join();
  const auto events = Written();
  ASSERT_EQ(events.size(), 200U);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].sequence(), i + 1);
}

TEST_F(RunDir, AFileOfSomethingElseIsRefused) {
  std::ofstream(folder_ / "events.1") << std::string("\x04\0\0\0\xff\xff\xff\xff", 8);
  EXPECT_EQ(MakeRunDirReporter(folder_, 1, clock_).error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace imgd::report
