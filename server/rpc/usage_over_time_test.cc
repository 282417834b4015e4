#include "server/rpc/usage_over_time.h"

#include "imgd/v1/usage.grpc.pb.h"
#include "server/rpc/convert.h"
#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kHour = 3'600'000'000;

v1::ListUsageOverTimeRequest Edges(std::vector<int64_t> hours) {
  v1::ListUsageOverTimeRequest request;
  for (const int64_t hour : hours) request.add_edges_us(hour * kHour);
  return request;
}

StartUse Start(uint64_t job, const std::string& owner, double hours, int64_t from, int64_t to,
               uint32_t ranks = 1, int64_t counted = 0) {
  return {.job = JobId(job),
          .owner = owner,
          .device_seconds = hours * 3600,
          .cost = hours * 2,
          .started_us = from * kHour,
          .ended_us = to * kHour,
          .ranks = ranks,
          .counted_us = counted * kHour};
}

v1::ListUsageOverTimeResponse Spread(const std::vector<StartUse>& starts, std::vector<int64_t> hours) {
  v1::ListUsageOverTimeResponse out;
  SpreadUsage(starts, {100 * kHour}, Edges(std::move(hours)), out);
  return out;
}

TEST(UsageOfAJob, ThatRunsIsOfTheMoment) {
  ClusterView view;
  NodeRecord node{.id = NodeId("b"), .price_per_hour = 8};
  node.devices.resize(4);
  view.nodes = {NodeRecord{.id = NodeId("a")}, node};
  JobRecord job{.id = JobId(1), .state = JobState::kRunning, .device_seconds = 3600, .cost = 2};
  job.run.parts = {{.node = NodeId("b"), .devices = {0, 1}}};
  job.run.charged = {100 * kHour};
  const auto told = [&](WallTime now) {
    v1::Job out = ToProto(job, view);
    AddHeldSince(job, view, now, out);
    return out;
  };
  EXPECT_NEAR(told({100 * kHour + kHour / 2}).device_hours(), 1 + 1, 1e-9);
  EXPECT_NEAR(told({100 * kHour + kHour / 2}).cost(), 2 + 2, 1e-9) << "half of a node of 8";
  EXPECT_EQ(told({99 * kHour}).cost(), 2) << "the clock was set back";
  job.run.parts[0].whole = true;
  EXPECT_NEAR(told({101 * kHour}).device_hours(), 1 + 4, 1e-9) << "it has the node for itself";
  EXPECT_NEAR(told({101 * kHour}).cost(), 2 + 8, 1e-9);
  job.state = JobState::kFailed;
  EXPECT_EQ(told({101 * kHour}).device_hours(), 1);
}

TEST(UsageOverTime, AJobThatStartedAgainTookWhatItTookWhenItRan) {
  // Six hours on the first day, a night in the queue, two on the next.
  const auto usage = Spread({Start(1, "ada", 8, 10, 16), Start(1, "ada", 8, 30, 32)}, {0, 24, 48, 72});
  ASSERT_EQ(usage.owners_size(), 1);
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(6, 2, 0));
  EXPECT_THAT(usage.owners(0).cost(), ElementsAre(12, 4, 0));
}

TEST(UsageOverTime, LargerStartsTookMore) {
  const auto usage = Spread({Start(1, "ada", 24, 0, 4, 2), Start(1, "ada", 24, 24, 28, 4)}, {0, 24, 48});
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(DoubleNear(8, 1e-9), DoubleNear(16, 1e-9)));
}

TEST(UsageOverTime, OfDeletedJobsEachStartIsItsOwn) {
  const auto out = Spread(
      {Start(0, "ada", 6, 18, 24), Start(0, "ada", 2, 32, 34), Start(0, "bob", 3, 24, 27)}, {0, 24, 48});
  ASSERT_EQ(out.owners_size(), 2);
  EXPECT_THAT(out.owners(0).device_hours(), ElementsAre(6, 2));
  EXPECT_THAT(out.owners(1).device_hours(), ElementsAre(0, 3));
}

TEST(UsageOverTime, WhatIsOutsideIsLeftOutAndWhatRunsLastsUntilNow) {
  const auto usage =
      Spread({Start(1, "ada", 10, 20, 30), Start(2, "lena", 4, 96, 0, 1, 100), Start(3, "old", 5, 1, 6)},
             {24, 48, 98});
  ASSERT_EQ(usage.owners_size(), 2);
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(DoubleNear(6, 1e-9), 0));
  EXPECT_EQ(usage.owners(1).owner(), "lena");
  EXPECT_THAT(usage.owners(1).device_hours(), ElementsAre(0, DoubleNear(2, 1e-9)));
}

TEST(UsageOverTime, WhatRunsIsCountedToTheMoment) {
  // Nothing of it was counted so far; then half of what it took.
  auto usage = Spread({Start(1, "ada", 0, 98, 0, 3)}, {96, 120});
  ASSERT_EQ(usage.owners_size(), 1);
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(6));
  usage = Spread({Start(1, "ada", 3, 98, 0, 3, 99)}, {96, 120});
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(6));
  EXPECT_THAT(usage.owners(0).cost(), ElementsAre(12));
  // One that nobody placed, as it was started by hand, holds nothing; of one that has ended all is counted.
  EXPECT_THAT(Spread({Start(1, "ada", 0, 98, 0, 0)}, {96, 120}).owners(), IsEmpty());
  EXPECT_THAT(Spread({Start(1, "ada", 1, 98, 99, 3)}, {96, 120}).owners(0).device_hours(), ElementsAre(1));
}

TEST(UsageOverTime, OnlyWhatCameSinceTheLastCountIsAdded) {
  // Of a start of two days on 8 devices three hours were counted, as imgd was away.
  auto usage = Spread({Start(1, "ada", 24, 51, 0, 8, 99)}, {48, 120});
  ASSERT_EQ(usage.owners_size(), 1);
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(DoubleNear(32, 1e-9)));
  EXPECT_THAT(usage.owners(0).cost(), ElementsAre(DoubleNear(64, 1e-9)));
  // Only the first of its starts was counted.
  usage = Spread({Start(1, "ada", 2, 90, 92), Start(1, "ada", 2, 99, 0)}, {48, 120});
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(DoubleNear(3, 1e-9)));
  // The clock was set back.
  usage = Spread({Start(1, "ada", 2, 98, 0, 1, 101)}, {48, 120});
  EXPECT_THAT(usage.owners(0).device_hours(), ElementsAre(DoubleNear(2, 1e-9)));
}

TEST_F(RpcTest, UsageOverTimeOfARunningJob) {
  auto usage = v1::UsageService::NewStub(channel);
  v1::ListUsageOverTimeResponse response;
  {
    Context context;
    const auto status = usage->ListUsageOverTime(&context, Edges({5, 5}), &response);
    EXPECT_THAT(status.error_message(), HasSubstr("edges_us: each is later than the one before"));
  }
  Context context;
  const auto status = usage->ListUsageOverTime(&context, Edges({0, 1, 5'000'000}), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.owners(), IsEmpty());
}

}  // namespace
}  // namespace imgd
