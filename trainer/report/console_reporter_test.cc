#include "trainer/report/console_reporter.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace imgd::report {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// A stream that keeps what is written to it.
class Captured {
 public:
  Captured() : file_(::open_memstream(&data_, &size_)) {}
  ~Captured() {
    std::fclose(file_);
    ::free(data_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

int LinesIn(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

TEST(Console, ProgressIsATableAsClassifiersLogsHaveIt) {
  Captured out, err;
  const auto console = MakeConsoleReporter({}, out.file(), err.file());
  console->On(Started{.device = "cpu",
                      .total_steps = 100,
                      .steps_per_epoch = 50,
                      .train_images = 640,
                      .model = "resnet18",
                      .total_epochs = 2});
  console->On(StepFigures{.step = 25,
                          .total_steps = 100,
                          .epoch = 0.5,
                          .loss = 2.25,
                          .penalty = 0.5,
                          .learning_rate = 0.1,
                          .images_per_second = 812.44});
  console->On(StepFigures{.step = 100, .total_steps = 100, .epoch = 2, .learning_rate = 1.25e-5});
  EXPECT_THAT(out.text(), StartsWith("resnet18 on 1 x cpu: 640 training images"));
  EXPECT_THAT(out.text(),
              testing::EndsWith("\n"
                                "    Step    Epoch      Speed      Loss   FinLoss          LR\n"
                                "      25     0.50      812.4    2.2500    2.7500         0.1\n"
                                "     100     2.00        0.0    0.0000    0.0000    1.25e-05\n"));
  EXPECT_EQ(err.text(), "");
}

TEST(Console, TheTableHasALineInSoManySteps) {
  Captured out, err;
  const auto console = MakeConsoleReporter({.line_every_steps = 10}, out.file(), err.file());
  for (uint64_t step = 1; step <= 25; ++step) console->On(StepFigures{.step = step, .total_steps = 25});
  EXPECT_EQ(LinesIn(out.text()), 4);  // the head, steps 10 and 20, and the last
}

TEST(Console, OnATerminalProgressIsOneLine) {
  Captured out, err;
  const auto console = MakeConsoleReporter({.in_place = true}, out.file(), err.file());
  console->On(StepFigures{.step = 25,
                          .total_steps = 100,
                          .epoch = 0.5,
                          .loss = 2.25,
                          .top1 = 0.125,
                          .learning_rate = 0.1,
                          .images_per_second = 812.4,
                          .input_wait_ratio = 0.02,
                          .eta_seconds = 83});
  EXPECT_THAT(out.text(),
              HasSubstr("epoch 0.50/0  step 25/100  loss 2.2500  top-1 12.5 %  812 images/s  lr 0.1  "
                        "input wait 2 %  eta 0:01:23"));
}

TEST(Console, OnATerminalProgressStaysOnItsLineUntilAnotherLineComes) {
  Captured out, err;
  const auto console = MakeConsoleReporter({.in_place = true}, out.file(), err.file());
  console->On(StepFigures{.step = 1, .total_steps = 9});
  console->On(StepFigures{.step = 2, .total_steps = 9});
  console->On(CheckpointFigures{.path = "/c", .step = 2, .size_bytes = 94'100'000});
  EXPECT_THAT(out.text(), StartsWith("\r\x1b[K"));
  EXPECT_THAT(out.text(), testing::EndsWith("\ncheckpoint after step 2: /c (89.7 MiB)\n"));
  EXPECT_EQ(LinesIn(out.text()), 2);
}

TEST(Console, OtherRanksOnlySpeakOfTrouble) {
  Captured out, err;
  const auto console = MakeConsoleReporter({.quiet = true}, out.file(), err.file());
  console->On(StepFigures{.step = 9, .total_steps = 9});
  console->On(Finished{.step = 9});
  console->On(BadImage{.path = "a/b.jpg", .error = "truncated", .count = 2});
  EXPECT_EQ(out.text(), "");
  EXPECT_EQ(err.text(), "left out a/b.jpg: truncated (2 so far)\n");
}

TEST(Console, DurationsAndSizesAreShort) {
  EXPECT_EQ(FormatDuration(0.4), "0:00:00");
  EXPECT_EQ(FormatDuration(3661), "1:01:01");
  EXPECT_EQ(FormatDuration(2 * 86400 + 5), "2d 0:00:05");
  EXPECT_EQ(FormatDuration(-1), "unknown");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(94'100'000), "89.7 MiB");
}

}  // namespace
}  // namespace imgd::report
