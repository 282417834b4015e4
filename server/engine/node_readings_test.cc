#include "server/engine/node_readings.h"

#include <gmock/gmock.h>

#include <chrono>

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsNan;

constexpr Instant kBegin{minutes(1000)};

TEST(RecentBusy, HasTheMeanOfEachMinuteWithThatWhichGoesOn) {
  RecentBusy busy;
  EXPECT_THAT(busy.Means(kBegin), IsEmpty());
  busy.Add(kBegin, 0.5);
  busy.Add(kBegin + seconds(59), 1);
  EXPECT_THAT(busy.Means(kBegin + seconds(59)), ElementsAre(0.75F));
  busy.Add(kBegin + seconds(60), 0.25);
  EXPECT_THAT(busy.Means(kBegin + seconds(60)), ElementsAre(0.75F, 0.25F));
  const RecentBusy copy = busy;
  busy.Add(kBegin + seconds(63), 0.75);
  EXPECT_THAT(busy.Means(kBegin + seconds(63)), ElementsAre(0.75F, 0.5F));
  EXPECT_THAT(copy.Means(kBegin + seconds(63)), ElementsAre(0.75F, 0.25F));
}

TEST(RecentBusy, AMinuteWithoutAReadingIsAHoleAlsoWhileNothingIsRead) {
  RecentBusy busy;
  busy.Add(kBegin, 0.5);
  EXPECT_THAT(busy.Means(kBegin + minutes(2)), ElementsAre(0.5F, IsNan(), IsNan()));
  busy.Add(kBegin + minutes(3), 1);
  EXPECT_THAT(busy.Means(kBegin + minutes(3)), ElementsAre(0.5F, IsNan(), IsNan(), 1.0F));
}

TEST(RecentBusy, ForgetsWhatIsOlderThanAnHour) {
  RecentBusy busy;
  for (int minute = 0; minute < 100; ++minute) busy.Add(kBegin + minutes(minute), minute);
  const auto means = busy.Means(kBegin + minutes(99));
  ASSERT_EQ(means.size(), RecentBusy::kMinutes);
  EXPECT_EQ(means.front(), 40);
  EXPECT_EQ(means.back(), 99);
  busy.Add(kBegin + minutes(100'000), 1);
  const auto after = busy.Means(kBegin + minutes(100'000));
  EXPECT_EQ(after.size(), RecentBusy::kMinutes);
  EXPECT_THAT(after.front(), IsNan());
  EXPECT_EQ(after.back(), 1);
}

TEST(NodeReadings, ADeviceThatCouldNotBeReadHasNoPartInTheMean) {
  NodeReadings readings;
  NodeReadings::Readings said;
  said.Add()->set_busy_ratio(0.5);
  said.Add()->set_error("utilisation can't be read: GPU is lost");
  readings.Take(said, kBegin);
  EXPECT_THAT(readings.busy.Means(kBegin), ElementsAre(0.5F));
  said.Mutable(0)->set_error("power can't be read: Not Supported; temperature can't be read: GPU is lost");
  readings.Take(said, kBegin);
  EXPECT_THAT(readings.busy.Means(kBegin), ElementsAre(0.5F)) << "another figure than this";
  said.RemoveLast();
  said.Mutable(0)->set_error("utilisation can't be read: GPU is lost");
  readings.Take(said, kBegin + minutes(1));
  EXPECT_EQ(readings.latest.size(), 1u);
  EXPECT_THAT(readings.busy.Means(kBegin + minutes(1)), ElementsAre(0.5F, IsNan())) << "nothing was read";
}

}  // namespace
}  // namespace imgd
