#include "trainer/report/background_reporter.h"

#include <gmock/gmock.h>

#include <future>

namespace imgd::report {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

/// Writes down what it is told, by a disk that answers when it is let.
class SlowDisk final : public Reporter {
 public:
  struct Written {
    std::vector<uint64_t> steps;
    bool failed = false;
  };
  SlowDisk(std::shared_future<void> let, Written& written) : let_(std::move(let)), written_(written) {}
  void On(const Started&) override {}
  void On(const StepFigures& x) override {
    let_.wait();
    written_.steps.push_back(x.step);
  }
  void On(const EpochFigures&) override {}
  void On(const SampleFigures&) override { let_.wait(); }
  void On(const CheckpointFigures&) override {}
  void On(const Finished&) override {}
  void On(const Failed&) override { written_.failed = true; }
  void On(const BadImage&) override {}
  void Note(const std::string&) override {}

 private:
  std::shared_future<void> let_;
  Written& written_;
};

class Background : public testing::Test {
 protected:
  std::unique_ptr<Reporter> Open() {
    return MakeBackgroundReporter(std::make_unique<SlowDisk>(let_.get_future().share(), written_),
                                  [this](const std::string& note) { notes_.push_back(note); });
  }

  std::promise<void> let_;
  SlowDisk::Written written_;
  std::vector<std::string> notes_;
};

TEST_F(Background, NobodyWaitsForTheDiskAndTheOrderStays) {
  auto reporter = Open();
  for (uint64_t step = 1; step <= 3; ++step) reporter->On(StepFigures{.step = step});
  reporter->On(Failed{});  // gives up waiting
  EXPECT_TRUE(written_.steps.empty());
  let_.set_value();
  reporter->Drain(seconds(60));
  EXPECT_THAT(written_.steps, ElementsAre(1, 2, 3));
  EXPECT_TRUE(written_.failed);
}

TEST_F(Background, ItsEndWritesWhatWaits) {
  let_.set_value();
  auto reporter = Open();
  reporter->On(StepFigures{.step = 7});
  reporter.reset();
  EXPECT_THAT(written_.steps, ElementsAre(7));
}

TEST_F(Background, WhatWaitsHasALimitAndThatIsSaidOnce) {
  auto reporter = Open();
  SampleFigures picture{.samples = {Sample{.rgb = std::vector<uint8_t>(20 << 20)}}};
  for (int i = 0; i < 6; ++i) reporter->On(picture);
  EXPECT_EQ(notes_.size(), 1U);
  let_.set_value();
  reporter->Drain(seconds(60));
  reporter->On(StepFigures{.step = 1});
  reporter->Drain(seconds(60));
  EXPECT_THAT(written_.steps, ElementsAre(1)) << "there is room again";
}

}  // namespace
}  // namespace imgd::report
