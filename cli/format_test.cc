#include "cli/format.h"

#include <gmock/gmock.h>

#include <chrono>

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Format, DurationsHaveTheTwoUnitsThatMatter) {
  EXPECT_EQ(HumanDuration(0), "0s");
  EXPECT_EQ(HumanDuration(0.3), "<1s");
  EXPECT_EQ(HumanDuration(59.9), "59s");
  EXPECT_EQ(HumanDuration(192), "3m12s");
  EXPECT_EQ(HumanDuration(2 * 3600 + 300), "2h05m");
  EXPECT_EQ(HumanDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(HumanDuration(400 * 86400.0), "400d");
  EXPECT_EQ(HumanDuration(-5), "0s") << "clocks differ between machines";
  EXPECT_EQ(HumanDuration(NAN), "-");
}

TEST(Format, AnAgeOfNothingIsADash) {
  EXPECT_EQ(HumanAge(100'000'000, 0), "-");
  EXPECT_EQ(HumanAge(100'000'000, 58'000'000), "42s");
}

TEST(Format, NumbersKeepTheDigitsThatMatter) {
  EXPECT_EQ(HumanRate(3.4159), "3.42");
  EXPECT_EQ(HumanRate(36.91), "36.9");
  EXPECT_EQ(HumanRate(99.96), "100");
  EXPECT_EQ(HumanRate(12345.6), "12346");
  EXPECT_EQ(HumanLoss(1.23456), "1.235");
  EXPECT_EQ(HumanLoss(6.9), "6.900");
  EXPECT_EQ(HumanLoss(0.0123456), "0.0123");
  EXPECT_EQ(HumanLoss(NAN), "nan") << "a diverged run must show";
  EXPECT_EQ(HumanPercent(0.4521), "45.2 %");
  EXPECT_EQ(HumanBytes(812), "812 B");
  EXPECT_EQ(HumanBytes(47395635), "45.2 MiB");
  EXPECT_EQ(HumanBytes(1010 * 1024ull), "0.99 MiB") << "never four digits and a unit";
}

TEST(Format, ABarFillsByEighths) {
  EXPECT_EQ(Bar(0.5, 4, false), "##..");
  EXPECT_EQ(Bar(0, 3, true), "░░░");
  EXPECT_EQ(Bar(1, 3, true), "███");
  EXPECT_EQ(Bar(0.5, 3, true), "█▌░");
  EXPECT_EQ(Bar(7, 2, false), "##");
  EXPECT_EQ(Bar(NAN, 2, false), "..");
}

TEST(Format, DurationsAreReadWithTheirUnits) {
  EXPECT_EQ(*ParseDuration("500ms"), 500ms);
  EXPECT_EQ(*ParseDuration("10s"), 10s);
  EXPECT_EQ(*ParseDuration("2m"), 2min);
  EXPECT_EQ(*ParseDuration("1h"), 1h);
  EXPECT_EQ(*ParseDuration("1.5"), 1500ms);
  for (const char* bad : {"", "0", "-1s", "1x", "ms", "10 s", "1mm", "nan", "1e99"}) {
    const auto parsed = ParseDuration(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_THAT(parsed.error().message, HasSubstr("a duration like 500ms, 10s"));
  }
}

TEST(Format, AnothersEscapeSequencesDoNothing) {
  EXPECT_EQ(Printable("a\x1b[31mb\nc\td"), "a [31mb c d");
  EXPECT_EQ(Printable("größe"), "größe");
}

TEST(Format, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth("größe"), 5);
  EXPECT_EQ(DisplayWidth("訓練"), 4);
  EXPECT_EQ(DisplayWidth("\xff\xfe"), 2) << "what is no UTF-8 takes some room too";
  EXPECT_EQ(Truncate("resnet50-large", 9, true), "resnet50…");
  EXPECT_EQ(Truncate("resnet50-large", 9, false), "resnet50~");
  EXPECT_EQ(Truncate("訓練訓練", 4, true), "訓…") << "half a character does not fit";
  EXPECT_EQ(Truncate("short", 9, true), "short");
}

TEST(Format, SignalsHaveNames) {
  EXPECT_EQ(SignalName(9), "SIGKILL");
  EXPECT_EQ(SignalName(99), "signal 99");
}

}  // namespace
}  // namespace imgd::cli
