#include "server/core/needs.h"

#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/testing/plan_builder.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kH100 = "NVIDIA H100 80GB HBM3";
constexpr const char* kA100 = "NVIDIA A100-SXM4-40GB";

/// Where the only job that starts goes; empty when none does.
std::vector<std::string> Start(const Plan& plan) {
  return plan.starts.size() == 1 ? Where(plan.starts.front()) : std::vector<std::string>();
}

std::string Explain(const PlanBuilder& builder, ReasonCode code) {
  return ExplainWait(builder.cluster, {builder.queue.front(), code, 1});
}

TEST(Needs, AModelIsAskedForByWordsOfItsName) {
  EXPECT_TRUE(IsModel(kH100, "H100"));
  EXPECT_TRUE(IsModel(kH100, "h100 80gb"));
  EXPECT_TRUE(IsModel(kA100, "A100"));
  EXPECT_TRUE(IsModel("NVIDIA GeForce RTX 4090", "RTX 4090"));
  EXPECT_FALSE(IsModel(kA100, "A10"));
  EXPECT_FALSE(IsModel(kH100, "80GB H100"));
  EXPECT_FALSE(IsModel(kH100, ""));
}

TEST(Needs, OfSeveralModelsAnyDoes) {
  PlanBuilder builder;
  builder.Node("a", 2).Is(kA100, 40).Node("b", 2).Is("Tesla T4", 15).Node("c", 2).Is(kH100, 80);
  builder.Queue(1, 2, 2).Asks({.gpu = true, .models = {"H100", "A100"}});
  EXPECT_THAT(Start(builder.Make()), ElementsAre("a:0,1@0", "c:0,1@2"));
}

TEST(Needs, ACpuSlotIsNoGpu) {
  PlanBuilder builder;
  builder.Node("a", 4).Is("cpu").Node("b", 1).Is("Tesla T4", 15).Queue(1, 1, 1).Asks({.gpu = true});
  EXPECT_THAT(Start(builder.Make()), ElementsAre("b:0@0"));
}

TEST(Needs, AGpuIsNoCpuSlot) {
  PlanBuilder builder;
  builder.Node("a", 1).Is("Tesla T4", 15).Node("b", 4).Is("cpu").Queue(1, 1, 2).Asks({.cpu = true});
  EXPECT_THAT(Start(builder.Make()), ElementsAre("b:0,1@0"));
  builder.queue[0].ranks_per_node = 5;
  EXPECT_THAT(Explain(builder, ReasonCode::kNeverFits), HasSubstr("needs 1 node with 5 CPU slots each"));
}

TEST(Needs, MemoryIsThatWhichItIsSoldAs) {
  PlanBuilder builder;
  builder.Node("a", 1).Is(kA100, 40).Node("b", 1).Is(kH100, 79);
  builder.Queue(1, 1, 1).Asks({.gpu = true, .memory_bytes = uint64_t{80} << 30});
  EXPECT_THAT(Start(builder.Make()), ElementsAre("b:0@0"));
}

TEST(Needs, OfAMixedNodeOnlyTheDevicesThatDoAreTaken) {
  std::vector<Device> devices;
  for (uint32_t i = 0; i < 4; ++i) devices.push_back({.index = i, .model = i % 2 == 0 ? kA100 : kH100});
  PlanBuilder builder;
  builder.Node("a", 4);
  builder.cluster.nodes[0].kind = KindOf(devices, {});
  builder.Queue(1, 1, 2).Asks({.models = {"H100"}}).Queue(2, 1, 1).Asks({.models = {"H100"}}).Queue(3, 1, 2);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("a:1,3@0"));
  EXPECT_EQ(plan.starts[1].job, JobId(3)) << "the other two are of no use to job 2";
  EXPECT_THAT(Where(plan.starts[1]), ElementsAre("a:0,2@0"));
}

TEST(Needs, LabelsThatANodeHasAndOthersThatItHasNot) {
  PlanBuilder builder;
  builder.Node("a", 1).Is("cpu", 0, {{"zone", "x"}});
  builder.Node("b", 1).Is("cpu", 0, {{"zone", "x"}, {"capacity", "spot"}});
  builder.Node("c", 1).Is("cpu", 0, {{"zone", "y"}});
  builder.Node("d", 1);
  const Needs zone_x{.labels = {{"zone", {"x"}}}};
  const Needs not_spot{.not_labels = {{"capacity", {"spot"}}}};
  const Needs y_or_z{.labels = {{"zone", {"y", "z"}}}};
  EXPECT_THAT(Start(PlanBuilder(builder).Queue(1, 2, 1).Asks(zone_x).Make()), ElementsAre("a:0@0", "b:0@1"));
  EXPECT_THAT(Start(PlanBuilder(builder).Queue(1, 3, 1).Asks(not_spot).Make()),
              ElementsAre("a:0@0", "c:0@1", "d:0@2"));
  EXPECT_THAT(Start(PlanBuilder(builder).Queue(1, 1, 1).Asks(y_or_z).Make()), ElementsAre("c:0@0"));
  EXPECT_THAT(PlanBuilder(builder).Queue(1, 4, 1).Asks(not_spot).Make().starts, IsEmpty());
}

TEST(Needs, AWholeNodeIsTakenOnlyWhenNothingRunsThereAndIsNobodyElses) {
  PlanBuilder builder;
  builder.Node("a", 4, {9}).Node("b", 4);
  builder.Queue(1, 1, 2).Asks({.whole_nodes = true}).Queue(2, 1, 2).Queue(3, 1, 2);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:0,1@0"));
  EXPECT_TRUE(plan.starts[0].parts[0].whole);
  EXPECT_THAT(Where(plan.starts[1]), ElementsAre("a:1,2@0"));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(3, ReasonCode::kWaitsForDevices)));
}

TEST(Needs, AWholeNodeIsReservedFromWhenItsLastJobEnds) {
  PlanBuilder builder;
  builder.Node("a", 2, {8, 9}).Ends(8, std::chrono::minutes(10)).Ends(9, std::chrono::minutes(30));
  builder.Queue(1, 1, 1).Asks({.whole_nodes = true});
  const auto plan = builder.Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().from, kNow + std::chrono::minutes(30));
}

TEST(Needs, AReservationWaitsForTheDevicesThatDo) {
  PlanBuilder builder;
  builder.Node("a", 1, {8}).Is(kA100).Ends(8, std::chrono::minutes(10));
  builder.Node("b", 1, {9}).Is(kH100).Ends(9, std::chrono::minutes(30));
  builder.Queue(1, 1, 1).Asks({.models = {"H100"}});
  const auto plan = builder.Make();
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().parts.at(0).node, NodeId("b"));
  EXPECT_EQ(plan.reserved.front().from, kNow + std::chrono::minutes(30));
}

/// Nodes of two placement groups in zone x, and of none in zone y.
PlanBuilder Placed() {
  PlanBuilder builder;
  builder.Node("a", 1).Is("cpu", 0, {{"zone", "x"}, {"placement_group", "p"}});
  builder.Node("b", 1).Is("cpu", 0, {{"zone", "x"}, {"placement_group", "q"}});
  builder.Node("c", 1).Is("cpu", 0, {{"zone", "y"}});
  builder.Node("d", 1).Is("cpu", 0, {{"zone", "x"}, {"placement_group", "q"}});
  builder.Node("e", 1).Is("cpu", 0, {{"zone", "y"}});
  return builder;
}

TEST(Topology, AGangGoesToTheNarrowestSetThatHoldsIt) {
  EXPECT_THAT(Start(Placed().Queue(1, 2, 1).Make()), ElementsAre("b:0@0", "d:0@1"));
}

TEST(Topology, ElseToAWiderOne) {
  EXPECT_THAT(Start(Placed().Queue(1, 3, 1).Make()), ElementsAre("a:0@0", "b:0@1", "d:0@2"));
}

TEST(Topology, ElseToAsFewOfTheWidestAsThereAreAndNeighboursInRankAreClose) {
  EXPECT_THAT(Start(Placed().Queue(1, 4, 1).Make()), ElementsAre("a:0@0", "b:0@1", "d:0@2", "c:0@3"));
}

TEST(Topology, OfSetsThatHoldItTheSmallestIsTaken) {
  PlanBuilder builder;
  for (const char* name : {"a", "b", "c"}) builder.Node(name, 1).Is("cpu", 0, {{"zone", "large"}});
  for (const char* name : {"d", "e"}) builder.Node(name, 1).Is("cpu", 0, {{"zone", "small"}});
  builder.Queue(1, 2, 1).Queue(2, 3, 1);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("d:0@0", "e:0@1"));
  EXPECT_THAT(Where(plan.starts[1]), ElementsAre("a:0@0", "b:0@1", "c:0@2"));
}

TEST(Topology, WhatIsTakenIsNoLongerClose) {
  auto builder = Placed();
  builder.Queue(1, 2, 1).Queue(2, 2, 1);
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:0@0", "d:0@1"));
  EXPECT_THAT(Where(plan.starts[1]), ElementsAre("c:0@0", "e:0@1"));
}

TEST(Topology, WhatIsKeptForAGangIsCloseTooWhereItIsKnownWhenItComesFree) {
  PlanBuilder builder;
  builder.Node("a", 1, {7}).Is("cpu", 0, {{"zone", "x"}}).Node("b", 1).Is("cpu", 0, {{"zone", "y"}});
  builder.Node("c", 1, {8}).Is("cpu", 0, {{"zone", "x"}});
  builder.Ends(7, minutes(1)).Ends(8, minutes(10)).Queue(1, 3, 1);
  const auto kept = [&builder] {
    std::vector<std::string> nodes;
    const Plan plan = builder.Make();
    for (const auto& part : plan.reserved.front().parts) nodes.push_back(part.node.name());
    return nodes;
  };
  EXPECT_THAT(kept(), ElementsAre("a", "b", "c")) << "no zone has three";
  builder.Node("d", 1, {8}).Is("cpu", 0, {{"zone", "y"}});
  builder.queue[0].nodes = 2;
  EXPECT_THAT(kept(), ElementsAre("a", "b")) << "both are free sooner than two of one zone";
  builder.Ends(7, minutes(10));
  EXPECT_THAT(kept(), ElementsAre("a", "c")) << "of equal zones the first";
  builder.Node("e", 1, {8}).Is("cpu", 0, {{"zone", "x"}});
  EXPECT_THAT(kept(), ElementsAre("b", "d")) << "the smallest zone that holds it";
  builder.cluster.ends.erase(JobId(8));
  builder.Node("f", 1).Is("cpu", 0, {{"zone", "z"}});
  builder.queue[0].nodes = 4;
  EXPECT_THAT(kept(), ElementsAre("a", "b", "c", "f")) << "nobody knows when: what waits for the fewest";
}

TEST(Needs, AWaitSaysWhatIsAskedForAndWhatIsInTheWay) {
  PlanBuilder builder;
  builder.Node("gpu-1", 8, {7, 7, 7, 7, 7, 7, 7, 7})
      .Is(kH100, 80, {{"zone", "x"}})
      .Node("gpu-2", 8)
      .Is(kA100, 40);
  builder.cluster.job_names[JobId(7)] = "rn50-b";
  builder.Queue(1, 1, 8).Asks({.gpu = true, .models = {"H100"}, .labels = {{"zone", {"x", "y"}}}});
  EXPECT_EQ(Explain(builder, ReasonCode::kWaitsForDevices),
            "needs 1 node with 8 free H100 each, labelled zone=x|y; 0 are free; job 7 (rn50-b) holds gpu-1; "
            "position 1 in the queue");
}

TEST(Needs, WhatNeverFitsSaysWhatThereIsInstead) {
  PlanBuilder builder;
  builder.Node("gpu-2", 8).Is(kA100, 40).Node("gpu-3", 8).Is(kA100, 40).Node("box", 2).Is("cpu");
  builder.Queue(1, 1, 8).Asks({.gpu = true, .models = {"H100"}, .not_labels = {{"capacity", {"spot"}}}});
  EXPECT_THAT(Waits(builder.Make()), ElementsAre(std::pair(1, ReasonCode::kNeverFits)));
  EXPECT_THAT(
      Explain(builder, ReasonCode::kNeverFits),
      HasSubstr("needs 1 node with 8 H100 each, not labelled capacity=spot, which no node can give; known: 2 "
                "nodes with 8 NVIDIA A100-SXM4-40GB, 1 node with 2 cpu; add nodes that can"));
  PlanBuilder zones;
  zones.Node("a", 1).Is("cpu", 0, {{"zone", "x"}}).Node("b", 1).Is("cpu", 0, {{"zone", "y"}});
  zones.Queue(1, 2, 1).Asks({.labels = {{"zone", {"x"}}}});
  EXPECT_THAT(Explain(zones, ReasonCode::kNeverFits),
              HasSubstr("labelled zone=x, which only 1 node can give; known: 2 nodes with 1 cpu, of them "
                        "1 labelled zone=x, 1 zone=y; ask for other labels, or give them to nodes"));
  zones.queue[0].needs = {.labels = {{"rack", {"7"}}}};
  EXPECT_THAT(Explain(zones, ReasonCode::kNeverFits),
              HasSubstr("known: 2 nodes with 1 cpu, without such labels; ask for other labels"));
}

}  // namespace
}  // namespace imgd
