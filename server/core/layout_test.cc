// What one plan leaves for the next makes it faster, not another.
#include "server/core/layout.h"

#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "server/core/testing/plan_builder.h"

namespace imgd {
namespace {

using testing::ElementsAre;

std::vector<std::string> TextOf(const Plan& plan) {
  std::vector<std::string> out;
  for (const auto* placements : {&plan.starts, &plan.kept}) {
    for (const auto& one : *placements) {
      for (const auto& where : Where(one)) out.push_back(fmt::format("{} on {}", one.job, where));
    }
  }
  for (const auto& wait : plan.waits)
    out.push_back(fmt::format("{}: {}", wait.job, static_cast<int>(wait.code)));
  for (const auto& one : plan.reserved) {
    for (const auto& where : Where({one.job, one.parts}))
      out.push_back(fmt::format("{} later on {}", one.job, where));
  }
  return out;
}

PlanBuilder SixNodes() {
  PlanBuilder builder;
  for (const char* name : {"a", "b", "c", "d", "e", "f"})
    builder.Node(name, 4).Is("NVIDIA H100 80GB HBM3", 80, {{"zone", "x"}});
  return builder;
}

TEST(Layout, IsOfNodesUntilOneHasOtherDevicesOrLabelsOrFoldersOrIsLost) {
  PlanBuilder builder = SixNodes();
  auto& nodes = builder.cluster.nodes;
  std::shared_ptr<Layout> memory;
  const auto kept = [&memory, &nodes] {
    const Layout* const before = memory.get();
    return LayoutFrom(memory, nodes).get() == before;
  };
  EXPECT_FALSE(kept());
  EXPECT_TRUE(kept());
  nodes[1].holders[0] = JobId(7);
  nodes[1].usable = false;
  EXPECT_TRUE(kept()) << "what is free is no part of it";
  nodes[1].lost = true;
  EXPECT_FALSE(kept());
  nodes[2].kind = KindOf({}, {{"zone", "y"}});
  EXPECT_FALSE(kept());
  nodes[3].folders = Sees("fs-1");
  EXPECT_FALSE(kept());
  nodes[4].devices.pop_back();
  EXPECT_FALSE(kept());
  nodes.pop_back();
  EXPECT_FALSE(kept());
  EXPECT_TRUE(kept());
}

TEST(Layout, FoldersThatGroupNodesAlikeAndWholeNodesShareWhatIsKnown) {
  PlanBuilder builder = SixNodes();
  for (auto& node : builder.cluster.nodes) {
    node.folders = std::make_shared<const FolderView>(
        node.id.name(), std::vector<SharedFolder>{{.path = "/nfs", .id = "nfs-1"}});
  }
  Layout layout(builder.cluster.nodes);
  const auto* const anywhere = &layout.FrameFor("", {});
  EXPECT_EQ(&layout.FrameFor("/nfs/ada", {}), anywhere);
  EXPECT_EQ(&layout.FrameFor("/nfs/bob", {.whole_nodes = true}), anywhere);
  EXPECT_NE(&layout.FrameFor("/home", {}), anywhere);
  EXPECT_NE(&layout.FrameFor("", {.gpu = true}), anywhere);
  EXPECT_THAT(*layout.GroupsFor("/home"), ElementsAre(0, 1, 2, 3, 4, 5));
}

using Random = std::minstd_rand;

void ChangeANode(Random& random, NodeSlots& node) {
  static const std::vector<std::shared_ptr<const NodeKind>> kinds = {
      nullptr, KindOf({}, {{"zone", "x"}}),
      KindOf({4, Device{.model = "Tesla T4", .memory_bytes = uint64_t{16} << 30}}, {{"zone", "y"}})};
  switch (random() % 6) {
    case 0:
      node.kind = kinds[random() % kinds.size()];
      break;
    case 1:
      node.lost = random() % 2 == 0;
      node.usable = !node.lost;
      break;
    case 2:
      node.folders = Sees(fmt::format("fs-{}", random() % 3));
      break;
    default:
      node.holders[random() % node.holders.size()] = JobId(random() % 3);
  }
}

/// Job after job, and change after change.
TEST(Layout, APlanWithMemoryIsThePlanWithout) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    PlanBuilder builder = SixNodes();
    std::shared_ptr<Layout> memory;
    for (int round = 0; round < 20; ++round) {
      if (random() % 2 == 0) ChangeANode(random, builder.cluster.nodes[random() % 6]);
      builder.queue.clear();
      for (uint64_t id = 10; id < 16; ++id) {
        builder.Queue(id, 1 + random() % 4, 1 + random() % 4);
        Needs needs{.gpu = random() % 2 == 0, .whole_nodes = random() % 3 == 0};
        if (random() % 3 == 0) needs.labels = {{"zone", {"x"}}};
        builder.Asks(needs);
        if (random() % 2 == 0) builder.queue.back().folder = random() % 2 == 0 ? "/a" : "/b";
        if (random() % 4 == 0) builder.queue.back().avoid = {NodeId("b")};
      }
      EXPECT_EQ(TextOf(MakePlan(builder.cluster, builder.queue, memory)), TextOf(builder.Make()))
          << "seed " << seed << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace imgd
