#include "server/engine/hub.h"

#include <gmock/gmock.h>

#include "server/engine/pace.h"

namespace imgd {
namespace {

using testing::ElementsAre;

TEST(Pace, RestsForAMultipleOfWhatTheWorkTook) {
  using std::chrono::milliseconds;
  const Instant start(std::chrono::hours(1));
  Pace pace(9);
  EXPECT_TRUE(pace.Due(start)) << "the first is due at once";
  pace.Took(start, start + milliseconds(5));
  EXPECT_EQ(pace.next(), start + milliseconds(5) + 9 * std::chrono::microseconds(7'500));
  EXPECT_FALSE(pace.Due(pace.next() - Duration(1)));
  EXPECT_TRUE(pace.Due(pace.next()));
  pace.Took(start, start + milliseconds(10));
  EXPECT_EQ(pace.next(), start + milliseconds(10) + 2 * 9 * milliseconds(10))
      << "what is long rests twice as long";
  pace.Took(start, start + std::chrono::minutes(1));
  EXPECT_EQ(pace.next(), start + std::chrono::minutes(1) + std::chrono::seconds(2));
}

TEST(Hub, WakesThoseWhoWaitOnceAndOnlyForNews) {
  Hub hub;
  int woken = 0;
  const Instant never = Instant::max();
  hub.Publish(JobId(1), 5);
  EXPECT_EQ(hub.Wait(JobId(1), 4, never, [&] { ++woken; }), std::nullopt) << "there is news already";
  ASSERT_TRUE(hub.Wait(JobId(1), 5, never, [&] { ++woken; }));
  hub.Publish(JobId(1), 5);
  hub.Publish(JobId(2), 9);
  EXPECT_EQ(woken, 0);
  hub.Publish(JobId(1), 6);
  hub.Publish(JobId(1), 7);
  EXPECT_EQ(woken, 1);
}

TEST(Hub, WaitsEndByCancelDeadlineAndClose) {
  Hub hub;
  std::vector<std::string> woken;
  const Instant start(std::chrono::hours(1));
  const auto wait = [&](const std::string& name, Instant deadline) {
    return hub.Wait(JobId(1), 0, deadline, [&woken, name] { woken.push_back(name); });
  };
  const auto cancelled = wait("cancelled", start);
  wait("early", start + std::chrono::seconds(1));
  wait("late", start + std::chrono::seconds(9));
  EXPECT_TRUE(hub.Cancel(*cancelled));
  EXPECT_FALSE(hub.Cancel(*cancelled));
  hub.Expire(start + std::chrono::seconds(1));
  EXPECT_THAT(woken, ElementsAre("early"));
  hub.Close();
  EXPECT_THAT(woken, ElementsAre("early", "late"));
  EXPECT_EQ(wait("after", start), std::nullopt);
}

}  // namespace
}  // namespace imgd
