#include "server/core/scheduler.h"

#include <gmock/gmock.h>

#include "server/core/folders.h"
#include "server/core/testing/plan_builder.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Scheduler, PlacesAGangOnDistinctNodesWithItsRanksInOrder) {
  const auto plan = PlanBuilder().Node("a", 2).Node("b", 2).Queue(1, 2, 2).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("a:0,1@0", "b:0,1@2"));
}

TEST(Scheduler, NeverStartsAPartOfAGang) {
  const auto plan = PlanBuilder().Node("a", 2).Node("b", 2, {9}).Queue(1, 2, 2).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, LeavesWholeNodesFree) {
  const auto plan = PlanBuilder().Node("a", 8).Node("b", 8, {9, 9}).Queue(1, 1, 4).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:2,3,4,5@0"));
}

TEST(Scheduler, ABlockedJobIsNotOvertaken) {
  const auto plan = PlanBuilder().Node("a", 1).Node("b", 1, {9}).Queue(1, 2, 1).Queue(2, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_EQ(plan.reserved.front().job, JobId(1));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices),
                                       std::pair(2u, ReasonCode::kWaitsBehindJob)));
}

TEST(Scheduler, AJobThatNeverFitsHoldsUpNobody) {
  const auto plan = PlanBuilder().Node("a", 1).Queue(1, 2, 1).Queue(2, 1, 8).Queue(3, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_THAT(Waits(plan),
              ElementsAre(std::pair(1u, ReasonCode::kNeverFits), std::pair(2u, ReasonCode::kNeverFits)));
}

TEST(Scheduler, AJobThatOnlyALostNodeWouldCompleteHoldsUpNobody) {
  const auto plan = PlanBuilder().Node("a", 1).Node("b", 1).Away(true).Queue(1, 2, 1).Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, NothingIsPlacedOnANodeThatIsAway) {
  const auto plan = PlanBuilder().Node("a", 1).Away().Queue(1, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
}

TEST(Scheduler, WithoutNodesItSaysSo) {
  EXPECT_THAT(Waits(PlanBuilder().Queue(1, 1, 1).Make()), ElementsAre(std::pair(1u, ReasonCode::kNoNodes)));
}

TEST(Scheduler, AJobInBackoffIsPassedBy) {
  PlanBuilder builder;
  builder.Node("a", 1).Queue(1, 1, 1).Queue(2, 1, 1);
  builder.queue[0].not_before = kNow + std::chrono::seconds(1);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
}

TEST(Scheduler, SaysOnlyWhatChanged) {
  PlanBuilder builder;
  builder.Node("a", 1, {9}).Queue(1, 1, 1);
  builder.queue[0].code = ReasonCode::kWaitsForDevices;
  EXPECT_THAT(builder.Make().waits, IsEmpty());
}

TEST(Scheduler, AJobThatWaitsForItsRetryKeepsItsPlace) {
  const auto plan =
      PlanBuilder().Node("a", 1).Node("b", 1).Queue(1, 2, 1, 1000).Retries().Queue(2, 1, 1, -1000).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(Where(plan.kept[0]), ElementsAre("a:0@0", "b:0@1"));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(2, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, WhatARetryDoesNotNeedIsForTheOthers) {
  const auto plan = PlanBuilder().Node("a", 2).Queue(1, 1, 1, 5).Retries().Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("a:1@0"));
}

TEST(Scheduler, AJobThatComesFirstTakesWhatARetryWaitsWith) {
  const auto plan = PlanBuilder().Node("a", 1).Queue(9, 1, 1, 5).Queue(1, 1, 1).Retries().Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(9));
  EXPECT_THAT(plan.kept, IsEmpty());
}

TEST(Scheduler, ALongWaitForTheRetryKeepsNoPlace) {
  const auto plan = PlanBuilder().Node("a", 1).Queue(1, 1, 1, 5).Retries(false).Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
}

using std::chrono::minutes;

TEST(Backfill, AJobThatNeedsNothingOfWhatIsReservedStarts) {
  // Job 1 waits for two nodes with 2 devices each, of which there are just two.
  const auto plan =
      PlanBuilder().Node("a", 2, {9}).Node("b", 2).Node("c", 1).Queue(1, 2, 2).Queue(2, 1, 1).Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().job, JobId(1));
  EXPECT_FALSE(plan.reserved.front().from) << "nobody knows when job 9 ends";
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("c:0@0"));
}

TEST(Backfill, OneIsPassedOverOnlyOnNodesThatItWaitsFor) {
  auto builder = PlanBuilder().Node("a", 2, {9, 9}).Is("H100").Node("b", 2).Is("cpu");
  builder.Ends(9, minutes(10)).Queue(1, 1, 2).Asks({.gpu = true}).Queue(2, 1, 1);
  const auto apart = builder.Make();
  ASSERT_THAT(apart.starts, SizeIs(1));
  EXPECT_EQ(apart.starts[0].passes, JobId());
  builder.cluster.nodes[0].holders[1] = JobId();
  builder.cluster.nodes[1].holders = {JobId(8), JobId(8)};
  builder.queue[1].most = minutes(5);
  const auto beside = builder.Make();
  ASSERT_THAT(beside.starts, SizeIs(1));
  EXPECT_EQ(beside.starts[0].passes, JobId(1));
}

TEST(Backfill, AStartIsNoPromiseWhereAnEarlierJobWaitsForAQuotaOrItsRetry) {
  auto builder = PlanBuilder().Node("a", 2, {9, 9}).Ends(9, minutes(10)).Queue(1, 1, 1).Queue(2, 1, 2);
  builder.queue[0].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 2, .used = 2};
  EXPECT_TRUE(builder.Make().reserved.at(0).estimate) << "it starts when another of ada's ends";
  builder.cluster.allowances["user ada"].devices = 0;
  builder.queue[0].not_before = kNow + minutes(1);
  EXPECT_TRUE(builder.Make().reserved.at(0).estimate) << "it starts in a minute";
  builder.queue[1].priority = 1;
  std::swap(builder.queue[0], builder.queue[1]);
  EXPECT_FALSE(builder.Make().reserved.at(0).estimate) << "it comes after it";
}

TEST(Backfill, WhatIsFreeNowIsReservedRatherThanWhatMayComeFree) {
  const auto plan = PlanBuilder().Node("a", 1, {9}).Node("b", 1, {8}).Node("c", 1).Queue(1, 2, 1).Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_THAT(Where({JobId(1), plan.reserved.front().parts}), ElementsAre("a:0@0", "c:0@1"));
}

TEST(Backfill, WhatIsReservedStaysSoThoughTheNodesOtherDevicesAreTaken) {
  const auto plan = PlanBuilder().Node("a", 1, {9}).Node("b", 1, {8}).Node("c", 2, {7}).Queue(1, 2, 1).Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_THAT(Where({JobId(1), plan.reserved.front().parts}), ElementsAre("a:0@0", "c:1@1"));
}

TEST(Backfill, TheReservationIsOnWhatComesFreeFirst) {
  const auto plan = PlanBuilder()
                        .Node("a", 1, {9})
                        .Node("b", 1, {8})
                        .Node("c", 1, {7})
                        .Ends(9, minutes(90))
                        .Ends(8, minutes(20))
                        .Ends(7, minutes(40))
                        .Queue(1, 2, 1)
                        .Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().from, kNow + minutes(40));
  EXPECT_THAT(Where({JobId(1), plan.reserved.front().parts}), ElementsAre("b:0@0", "c:0@1"));
}

TEST(Backfill, OneThatNeedsNoneOfTheFirstOnesNodesHasDevicesReservedToo) {
  PlanBuilder builder;
  builder.Node("a", 1, {9}).Is("H100").Node("b", 2, {8}).Is("A100").Ends(8, minutes(40));
  builder.Queue(1, 1, 1).Asks({.models = {"H100"}});
  for (const auto& [id, ranks, most] :
       {std::tuple(2, 2, minutes(0)), std::tuple(3, 1, minutes(50)), std::tuple(4, 1, minutes(30))})
    builder.Queue(id, 1, ranks).Asks({.models = {"A100"}}).For(most);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.reserved, SizeIs(2));
  EXPECT_FALSE(plan.reserved[0].from) << "nobody knows when job 9 ends";
  EXPECT_EQ(plan.reserved[1].job, JobId(2));
  EXPECT_EQ(plan.reserved[1].from, kNow + minutes(40));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices),
                                       std::pair(2u, ReasonCode::kWaitsForDevices),
                                       std::pair(3u, ReasonCode::kWaitsForDevices)));
  ASSERT_THAT(plan.starts, SizeIs(1)) << "which is over in time";
  EXPECT_EQ(plan.starts[0].job, JobId(4));
}

TEST(Backfill, WhatTheSamePlanStartsEndsInItsTimeToo) {
  struct Row {
    const char* what;
    Duration most;      ///< of job 1, which gets node b
    int other_minutes;  ///< after which job 9 ends, on node a; 0: nobody knows
    bool retries;       ///< job 1 waits for its retry
    const char* where;  ///< what is reserved for job 2
    std::optional<Duration> in;
  };
  const std::vector<Row> rows = {
      {"it ends first", minutes(10), 60, false, "b:0@0", minutes(10)},
      {"of the other nobody knows", minutes(10), 0, false, "b:0@0", minutes(10)},
      {"it ends last", minutes(90), 60, false, "a:0@0", minutes(60)},
      {"nobody knows when it ends", Duration::zero(), 60, false, "a:0@0", minutes(60)},
      {"nobody knows of either", Duration::zero(), 0, false, "a:0@0", std::nullopt},
      {"nobody knows when it starts", minutes(10), 60, true, "a:0@0", minutes(60)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    PlanBuilder builder;
    builder.Node("a", 1, {9}).Node("b", 1).Queue(1, 1, 1).For(row.most);
    if (row.retries) builder.Retries();
    if (row.other_minutes > 0) builder.Ends(9, minutes(row.other_minutes));
    const auto plan = builder.Queue(2, 1, 1).Make();
    ASSERT_FALSE(plan.reserved.empty());
    EXPECT_THAT(Where({JobId(2), plan.reserved.front().parts}), ElementsAre(row.where));
    EXPECT_EQ(plan.reserved.front().from, row.in ? std::optional(kNow + *row.in) : std::nullopt);
  }
}

/// Node a is held by job 9 for a minute more; the gang (job 2) was to have it then, and has b already. Job 3
/// comes before it and waits for both devices of a.
PlanBuilder AGangThatSomebodyCameBefore(Duration most) {
  PlanBuilder builder;
  builder.Node("a", 2, {9, 9}).Node("b", 1).Ends(9, minutes(1));
  return builder.Queue(3, 1, 2, 9).For(most).Queue(2, 2, 1).Promised();
}

TEST(Backfill, WhatIsReservedIsKeptThoughAnotherComesBeforeIt) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(minutes(60));
  const auto plan = builder.Queue(4, 1, 1).For(minutes(62)).Queue(5, 1, 1).For(minutes(61)).Make();
  ASSERT_THAT(plan.reserved, SizeIs(2));
  EXPECT_EQ(plan.reserved[0].job, JobId(3));
  EXPECT_EQ(plan.reserved[0].from, kNow + minutes(1));
  EXPECT_EQ(plan.reserved[1].job, JobId(2));
  EXPECT_EQ(plan.reserved[1].from, kNow + minutes(61)) << "when job 3 has ended";
  EXPECT_TRUE(plan.reserved[1].estimate) << "others may come before it";
  EXPECT_THAT(Where({JobId(2), plan.reserved[1].parts}), ElementsAre("a:0@0", "b:0@1"));
  EXPECT_THAT(plan.starts, IsEmpty()) << "job 4 ends too late for job 2, and job 5 for job 3";
}

TEST(Backfill, WhatIsOverBeforeAllThatIsReservedIsNeededStarts) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(minutes(60));
  const auto plan = builder.Queue(4, 1, 1).For(minutes(1)).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:0@0"));
}

TEST(Backfill, WhoComesAfterOneOfUnknownLengthKeepsWhatIsReservedToo) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(Duration::zero());
  const auto plan = builder.Queue(4, 1, 1).Make();
  ASSERT_THAT(plan.reserved, SizeIs(2));
  EXPECT_FALSE(plan.reserved[1].from) << "nobody knows when job 3 ends";
  EXPECT_THAT(plan.starts, IsEmpty());
}

TEST(Backfill, WhoWasNeverTheFirstHasNothingReserved) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(minutes(60));
  builder.queue.back().promised = false;
  const auto plan = builder.Queue(4, 1, 1).Make();
  EXPECT_THAT(plan.reserved, SizeIs(1));
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].passes, JobId(2));
}

TEST(Backfill, WhoWaitsBeforeWhatIsKeptHasSomethingReservedToo) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(minutes(60));
  builder.cluster.nodes[1].holders[0] = JobId(8);
  builder.Ends(8, minutes(2)).Queue(4, 1, 1, 5).For(minutes(180)).Queue(5, 1, 1, 4);
  std::swap(builder.queue[1], builder.queue[2]);
  std::swap(builder.queue[2], builder.queue[3]);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.reserved, SizeIs(4)) << "in the order of the queue: jobs 3, 4, 5 and 2";
  EXPECT_THAT(Where({JobId(4), plan.reserved[1].parts}), ElementsAre("b:0@0"));
  EXPECT_EQ(plan.reserved[1].from, kNow + minutes(2));
  EXPECT_THAT(Where({JobId(5), plan.reserved[2].parts}), ElementsAre("a:0@0"));
  EXPECT_EQ(plan.reserved[2].from, kNow + minutes(61)) << "when job 3 has ended";
  EXPECT_EQ(plan.reserved[3].from, kNow + minutes(182)) << "when job 4 has ended";
}

TEST(Backfill, WhoComesBeforeWhatIsKeptTakesIt) {
  PlanBuilder builder = AGangThatSomebodyCameBefore(minutes(60));
  builder.Queue(4, 1, 1, 5);
  std::swap(builder.queue[1], builder.queue[2]);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1)) << "job 4 comes before job 2 as well";
  EXPECT_EQ(plan.starts[0].job, JobId(4));
  ASSERT_THAT(plan.reserved, SizeIs(2));
  EXPECT_FALSE(plan.reserved[1].from) << "nobody knows when job 4 ends";
}

TEST(Backfill, AShortJobUsesReservedDevicesUntilTheyAreNeeded) {
  PlanBuilder builder;
  builder.Node("a", 1, {9}).Node("b", 1).Ends(9, minutes(30)).Queue(1, 2, 1);
  builder.Queue(2, 1, 1).For(minutes(31)).Queue(3, 1, 1).For(minutes(30)).Queue(4, 1, 1).For(minutes(1));
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1)) << "job 2 would be late, and job 3 takes the only free device";
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices),
                                       std::pair(2u, ReasonCode::kWaitsForDevices),
                                       std::pair(4u, ReasonCode::kWaitsForDevices)))
      << "nothing is free any more";
}

TEST(Backfill, OneWhoseTimeNobodyKnowsLeavesReservedDevicesAlone) {
  const auto plan =
      PlanBuilder().Node("a", 1, {9}).Node("b", 1).Ends(9, minutes(30)).Queue(1, 2, 1).Queue(2, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
}

TEST(Backfill, AGangThatWaitsForANodeOutOfReachHasTheOthersReserved) {
  const auto plan = PlanBuilder().Node("a", 1).Node("b", 1).Away().Queue(1, 2, 1).Queue(2, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_FALSE(plan.reserved.front().from);
}

NodeRecord Host(const std::string& name, const std::string& filesystem,
                std::vector<SharedFolder> shared = {}) {
  NodeRecord node{.id = NodeId(name),
                  .filesystem_id = filesystem,
                  .devices = {{.index = 0}},
                  .shared_folders = std::move(shared),
                  .session = 1};
  node.folders = std::make_shared<const FolderView>(ViewOf(node));
  return node;
}

TEST(Folders, OneFileSystemOrOneSharedFolderIsGood) {
  EXPECT_THAT(*CheckFolders({Host("a", "fs1"), Host("b", "fs1")}, 2, 1, {}, "/x"), IsEmpty());
  EXPECT_THAT(*CheckFolders({Host("a", "fs1", {{"/efs", "m1"}}), Host("b", "fs2", {{"/efs", "m1"}})}, 2, 1,
                            {}, "/efs/c"),
              IsEmpty());
}

TEST(Folders, AGangOverFoldersThatAreNotSharedIsRefused) {
  const auto refused = CheckFolders({Host("a", "fs1"), Host("b", "fs2")}, 2, 1, {}, "/x");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("nodes a and b do not share the checkpoint folder /x"));
  EXPECT_THAT(refused.error().hint, HasSubstr("shared_folders"));
  // "/efs2" is not below "/efs".
  EXPECT_FALSE(
      CheckFolders({Host("a", "1", {{"/efs", "m"}}), Host("b", "2", {{"/efs", "m"}})}, 2, 1, {}, "/efs2"));
}

TEST(Folders, OneNodeIsOnlyWarned) {
  EXPECT_THAT(*CheckFolders({Host("a", "fs1"), Host("b", "fs2")}, 1, 1, {}, "/x"),
              ElementsAre(HasSubstr("can resume only on the node that it ran on")));
  EXPECT_THAT(*CheckFolders({}, 1, 1, {}, "/x"), ElementsAre(HasSubstr("was not checked")));
}

TEST(Folders, TwoFoldersAtOnePathAreRefused) {
  const auto refused = CheckFolders({Host("a", "fs1", {{"/efs", "m1"}}), Host("b", "fs2", {{"/efs", "m2"}})},
                                    1, 1, {}, "/efs/c");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("both declare /efs as shared"));
}

TEST(Folders, OnlyNodesThatTheJobCouldHaveMatter) {
  const auto in_zone = [](NodeRecord node, const std::string& zone) {
    node.labels = {{"zone", zone}};
    node.kind = KindOf(node.devices, node.labels);
    return node;
  };
  const std::vector<NodeRecord> nodes = {in_zone(Host("a", "fs1", {{"/efs", "m1"}}), "m"),
                                         in_zone(Host("b", "fs2", {{"/efs", "m2"}}), "o"),
                                         in_zone(Host("c", "fs3", {{"/efs", "m2"}}), "o")};
  const auto said = [&nodes](uint32_t gang_nodes, const Needs& needs) {
    const auto found = CheckFolders(nodes, gang_nodes, 1, needs, "/efs/c");
    return found ? *found : std::vector<std::string>{found.error().message};
  };
  EXPECT_THAT(said(1, {}), ElementsAre(HasSubstr("nodes a and b both declare /efs as shared")));
  EXPECT_THAT(said(1, {.labels = {{"zone", {"m"}}}}), IsEmpty());
  EXPECT_THAT(said(1, {.not_labels = {{"zone", {"m"}}}}), IsEmpty());
  EXPECT_THAT(said(2, {.labels = {{"zone", {"o"}}}}), IsEmpty());
  EXPECT_THAT(said(1, {.labels = {{"zone", {"p"}}}}), ElementsAre(HasSubstr("was not checked")));
}

TEST(Folders, PathsAreComparedAsWhatTheyMean) {
  const std::vector<NodeRecord> nodes = {Host("a", "fs1", {{"/x/sh", "m"}}),
                                         Host("b", "fs2", {{"/x//sh/", "m"}})};
  const auto escaped = CheckFolders(nodes, 2, 1, {}, "/x/sh/../priv");
  ASSERT_FALSE(escaped.has_value());
  EXPECT_THAT(escaped.error().message, HasSubstr("the checkpoint folder /x/sh/../priv"))
      << "as it was written";
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, {}, "/x/./sh/y"), IsEmpty());
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, {}, "/x/sh/"), IsEmpty());
}

TEST(Folders, OneNodeWithoutTheFolderDoesNotHoldUpAGangOfTheOthers) {
  const std::vector<NodeRecord> nodes = {Host("a", "fs1"), Host("b", "fs2", {{"/efs", "m"}}),
                                         Host("c", "fs3", {{"/efs", "m"}})};
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, {}, "/efs/c"),
              ElementsAre(HasSubstr("placed only on nodes that share it, which 2 of 3 do")));
  EXPECT_FALSE(CheckFolders(nodes, 3, 1, {}, "/efs/c").has_value());
}

TEST(Folders, ABucketIsSeenByAll) {
  const std::vector<NodeRecord> nodes = {Host("a", "fs1"), Host("b", "fs2")};
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, {}, "s3://bucket/x"), IsEmpty());
  EXPECT_THAT(*CheckFolders(nodes, 1, 1, {}, "s3://bucket/x"), IsEmpty());
  EXPECT_EQ(NormalPath("s3://bucket//x/"), "s3://bucket/x");
}

TEST(Folders, NodesAreTiedThroughOthersToo) {
  const std::vector<FolderView> views = {
      {"fs2", {}}, {"fs1", {{"/efs", "m"}}}, {"fs2", {{"/efs", "m"}}}, {"", {}}, {"", {}}};
  std::vector<const FolderView*> nodes;
  for (const auto& view : views) nodes.push_back(&view);
  nodes.push_back(nullptr);
  EXPECT_THAT(FolderGroups(nodes, "/efs/c"), ElementsAre(0, 0, 0, 3, 4, 5));
  EXPECT_THAT(FolderGroups(nodes, "/other"), ElementsAre(0, 1, 0, 3, 4, 5));
}

}  // namespace
}  // namespace imgd
