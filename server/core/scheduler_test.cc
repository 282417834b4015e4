#include "server/core/scheduler.h"

#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/folders.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Instant kNow(std::chrono::hours(1));

/// A cluster and a queue, built up in a line each.
class Builder {
 public:
  Builder& Node(const std::string& name, uint32_t devices, std::vector<uint64_t> holders = {}) {
    NodeSlots node{.id = NodeId(name), .usable = true};
    for (uint32_t i = 0; i < devices; ++i) node.devices.push_back(i);
    node.holders.resize(devices);
    for (size_t i = 0; i < holders.size(); ++i) node.holders[i] = JobId(holders[i]);
    cluster.nodes.push_back(std::move(node));
    return *this;
  }
  Builder& Away(bool lost = false) {
    cluster.nodes.back().usable = false;
    cluster.nodes.back().lost = lost;
    cluster.nodes.back().why_not = lost ? "is lost" : "is out of reach for 10 s";
    return *this;
  }
  Builder& Queue(uint64_t id, uint32_t nodes, uint32_t ranks, int priority = 0) {
    queue.push_back({.priority = priority, .id = JobId(id), .nodes = nodes, .ranks_per_node = ranks});
    return *this;
  }
  /// The job queued last waits for its retry.
  Builder& Retries(bool keeps_place = true) {
    queue.back().not_before = kNow + std::chrono::seconds(1);
    queue.back().keeps_place = keeps_place;
    queue.back().code = ReasonCode::kBackoff;
    return *this;
  }
  Plan Make() const { return MakePlan(cluster, queue, kNow); }

  Snapshot cluster;
  std::vector<QueuedJob> queue;
};

std::vector<std::string> Where(const Placement& placement) {
  std::vector<std::string> out;
  for (const auto& part : placement.parts) {
    out.push_back(fmt::format("{}:{}@{}", part.node, fmt::join(part.devices, ","), part.first_rank));
  }
  return out;
}

std::vector<std::pair<uint64_t, ReasonCode>> Waits(const Plan& plan) {
  std::vector<std::pair<uint64_t, ReasonCode>> out;
  for (const auto& wait : plan.waits) out.emplace_back(wait.job.value(), wait.code);
  return out;
}

TEST(Scheduler, PlacesAGangOnDistinctNodesWithItsRanksInOrder) {
  const auto plan = Builder().Node("a", 2).Node("b", 2).Queue(1, 2, 2).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("a:0,1@0", "b:0,1@2"));
}

TEST(Scheduler, NeverStartsAPartOfAGang) {
  const auto plan = Builder().Node("a", 2).Node("b", 2, {9}).Queue(1, 2, 2).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, LeavesWholeNodesFree) {
  const auto plan = Builder().Node("a", 8).Node("b", 8, {9, 9}).Queue(1, 1, 4).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:2,3,4,5@0"));
}

TEST(Scheduler, ABlockedJobIsNotOvertaken) {
  const auto plan = Builder().Node("a", 1).Node("b", 1, {9}).Queue(1, 2, 1).Queue(2, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_EQ(plan.blocker, JobId(1));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices),
                                       std::pair(2u, ReasonCode::kWaitsBehindJob)));
}

TEST(Scheduler, AJobThatNeverFitsHoldsUpNobody) {
  const auto plan = Builder().Node("a", 1).Queue(1, 2, 1).Queue(2, 1, 8).Queue(3, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_THAT(Waits(plan),
              ElementsAre(std::pair(1u, ReasonCode::kNeverFits), std::pair(2u, ReasonCode::kNeverFits)));
}

TEST(Scheduler, AJobThatOnlyALostNodeWouldCompleteHoldsUpNobody) {
  const auto plan = Builder().Node("a", 1).Node("b", 1).Away(true).Queue(1, 2, 1).Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1u, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, NothingIsPlacedOnANodeThatIsAway) {
  const auto plan = Builder().Node("a", 1).Away().Queue(1, 1, 1).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
}

TEST(Scheduler, WithoutNodesItSaysSo) {
  EXPECT_THAT(Waits(Builder().Queue(1, 1, 1).Make()), ElementsAre(std::pair(1u, ReasonCode::kNoNodes)));
}

TEST(Scheduler, AJobInBackoffIsPassedBy) {
  Builder builder;
  builder.Node("a", 1).Queue(1, 1, 1).Queue(2, 1, 1);
  builder.queue[0].not_before = kNow + std::chrono::seconds(1);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
}

TEST(Scheduler, SaysOnlyWhatChanged) {
  Builder builder;
  builder.Node("a", 1, {9}).Queue(1, 1, 1);
  builder.queue[0].code = ReasonCode::kWaitsForDevices;
  EXPECT_THAT(builder.Make().waits, IsEmpty());
}

TEST(Explain, NamesWhatIsNeededWhatIsFreeAndWhoHoldsIt) {
  auto builder = Builder().Node("gpu-1", 1).Node("gpu-2", 1, {3});
  builder.cluster.job_names[JobId(3)] = "rn50-a";
  EXPECT_EQ(ExplainWait(builder.cluster, {2, 1, ReasonCode::kWaitsForDevices, 1}, JobId()),
            "needs 2 nodes with 1 free device each; 1 is free; job 3 (rn50-a) holds gpu-2; position 1 in the "
            "queue");
  EXPECT_EQ(ExplainWait(builder.cluster, {1, 1, ReasonCode::kWaitsBehindJob, 2}, JobId(3)),
            "waits behind job 3 (rn50-a), which comes first; needs 1 node with 1 free device each; position "
            "2 in the "
            "queue");
}

TEST(Explain, NamesNodesThatAreAway) {
  const auto builder = Builder().Node("gpu-1", 8).Away();
  EXPECT_THAT(ExplainWait(builder.cluster, {1, 8, ReasonCode::kWaitsForDevices, 1}, JobId()),
              HasSubstr("0 are free; node gpu-1 is out of reach for 10 s"));
}

TEST(Explain, SaysWhyAGangNeverFits) {
  const auto builder = Builder().Node("gpu-1", 4).Node("gpu-2", 2);
  EXPECT_EQ(ExplainWait(builder.cluster, {2, 4, ReasonCode::kNeverFits, 1}, JobId()),
            "needs 2 nodes with 4 devices each; of the 2 nodes known 1 has that many, and the most on one "
            "node is 4 "
            "devices; add nodes or submit a smaller gang; position 1 in the queue");
}

TEST(Scheduler, AJobThatWaitsForItsRetryKeepsItsPlace) {
  const auto plan =
      Builder().Node("a", 1).Node("b", 1).Queue(1, 2, 1, 1000).Retries().Queue(2, 1, 1, -1000).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(Where(plan.kept[0]), ElementsAre("a:0@0", "b:0@1"));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(2, ReasonCode::kWaitsForDevices)));
}

TEST(Scheduler, WhatARetryDoesNotNeedIsForTheOthers) {
  const auto plan = Builder().Node("a", 2).Queue(1, 1, 1, 5).Retries().Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("a:1@0"));
}

TEST(Scheduler, AJobThatComesFirstTakesWhatARetryWaitsWith) {
  const auto plan = Builder().Node("a", 1).Queue(9, 1, 1, 5).Queue(1, 1, 1).Retries().Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(9));
  EXPECT_THAT(plan.kept, IsEmpty());
}

TEST(Scheduler, ALongWaitForTheRetryKeepsNoPlace) {
  const auto plan = Builder().Node("a", 1).Queue(1, 1, 1, 5).Retries(false).Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
}

NodeRecord Host(const std::string& name, const std::string& filesystem,
                std::vector<SharedFolder> shared = {}) {
  return {.id = NodeId(name),
          .filesystem_id = filesystem,
          .devices = {{.index = 0}},
          .shared_folders = std::move(shared),
          .session = 1};
}

TEST(Folders, OneFileSystemOrOneSharedFolderIsGood) {
  EXPECT_THAT(*CheckFolders({Host("a", "fs1"), Host("b", "fs1")}, 2, 1, "/x"), IsEmpty());
  EXPECT_THAT(
      *CheckFolders({Host("a", "fs1", {{"/efs", "m1"}}), Host("b", "fs2", {{"/efs", "m1"}})}, 2, 1, "/efs/c"),
      IsEmpty());
}

TEST(Folders, AGangOverFoldersThatAreNotSharedIsRefused) {
  const auto refused = CheckFolders({Host("a", "fs1"), Host("b", "fs2")}, 2, 1, "/x");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("nodes a and b do not share the checkpoint folder /x"));
  EXPECT_THAT(refused.error().hint, HasSubstr("shared_folders"));
  // "/efs2" is not below "/efs".
  EXPECT_FALSE(
      CheckFolders({Host("a", "1", {{"/efs", "m"}}), Host("b", "2", {{"/efs", "m"}})}, 2, 1, "/efs2"));
}

TEST(Folders, OneNodeIsOnlyWarned) {
  EXPECT_THAT(*CheckFolders({Host("a", "fs1"), Host("b", "fs2")}, 1, 1, "/x"),
              ElementsAre(HasSubstr("can resume only on the node that it ran on")));
  EXPECT_THAT(*CheckFolders({}, 1, 1, "/x"), ElementsAre(HasSubstr("was not checked")));
}

TEST(Folders, TwoFoldersAtOnePathAreRefused) {
  const auto refused =
      CheckFolders({Host("a", "fs1", {{"/efs", "m1"}}), Host("b", "fs2", {{"/efs", "m2"}})}, 1, 1, "/efs/c");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("both declare /efs as shared"));
}

TEST(Folders, PathsAreComparedAsWhatTheyMean) {
  const std::vector<NodeRecord> nodes = {Host("a", "fs1", {{"/x/sh", "m"}}),
                                         Host("b", "fs2", {{"/x//sh/", "m"}})};
  const auto escaped = CheckFolders(nodes, 2, 1, "/x/sh/../priv");
  ASSERT_FALSE(escaped.has_value());
  EXPECT_THAT(escaped.error().message, HasSubstr("the checkpoint folder /x/sh/../priv"))
      << "as it was written";
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, "/x/./sh/y"), IsEmpty());
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, "/x/sh/"), IsEmpty());
}

TEST(Folders, OneNodeWithoutTheFolderDoesNotHoldUpAGangOfTheOthers) {
  const std::vector<NodeRecord> nodes = {Host("a", "fs1"), Host("b", "fs2", {{"/efs", "m"}}),
                                         Host("c", "fs3", {{"/efs", "m"}})};
  EXPECT_THAT(*CheckFolders(nodes, 2, 1, "/efs/c"),
              ElementsAre(HasSubstr("placed only on nodes that share it, which 2 of 3 do")));
  EXPECT_FALSE(CheckFolders(nodes, 3, 1, "/efs/c").has_value());
}

TEST(Folders, NodesAreTiedThroughOthersToo) {
  const std::vector<FolderView> views = {
      {"fs2", {}}, {"fs1", {{"/efs", "m"}}}, {"fs2", {{"/efs", "m"}}}, {"", {}}, {"", {}}};
  EXPECT_THAT(FolderGroups(views, "/efs/c"), ElementsAre(0, 0, 0, 3, 4));
  EXPECT_THAT(FolderGroups(views, "/other"), ElementsAre(0, 1, 0, 3, 4));
}

}  // namespace
}  // namespace imgd
