#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "server/store/reader.h"
#include "server/store/state_store.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct DecisionStore : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_decisions_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(MetricsStore::Open(folder).has_value());
    auto opened = StateStore::Open(folder);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    store = std::make_unique<StateStore>(std::move(*opened));
  }
  void TearDown() override {
    store.reset();
    std::filesystem::remove_all(folder);
  }
  /// A decision about a node, of that number and time.
  void OfNode(uint64_t number, const std::string& node, int64_t time_us) {
    store->AppendDecision(number, {.node = NodeId(node),
                                   .reason = {ReasonCode::kNodeJoined, fmt::format("{} joined", node)},
                                   .actor = "agent:" + node,
                                   .time = {time_us}});
  }
  /// A change of a job, which is in its history too.
  void OfJob(uint64_t number, JobState from, JobState to, const std::string& text) {
    const AppendEvent event{.job = JobId(1),
                            .generation = Generation(1),
                            .from = from,
                            .to = to,
                            .reason = {ReasonCode::kPlaced, text},
                            .actor = "scheduler",
                            .time = {static_cast<int64_t>(number)}};
    store->AppendEvent(number + 100, event);
    store->AppendDecision(number, {.job = event.job, .reason = event.reason, .time = event.time},
                          number + 100);
  }
  std::vector<std::string> Texts(DecisionFilter filter) {
    auto reader = Reader::Open(folder);
    filter.last = filter.last == 0 ? 1000 : filter.last;
    std::vector<std::string> out;
    const auto decisions = reader->Decisions(filter);
    for (const auto& decision : *decisions) out.push_back(decision.text);
    return out;
  }
  std::filesystem::path folder;
  std::unique_ptr<StateStore> store;
};

TEST_F(DecisionStore, DecisionsComeBackInOrderAndByWhatTheyAreAbout) {
  store->SavePlacement({JobId(1), Generation(1)}, {{.node = NodeId("a"), .devices = {0}}});
  OfNode(1, "a", 1);
  OfJob(2, JobState::kQueued, JobState::kStarting, "placed on a");
  OfNode(3, "b", 3);
  OfJob(4, JobState::kRunning, JobState::kQueued, "killed");
  OfJob(5, JobState::kQueued, JobState::kQueued, "waits");
  ASSERT_TRUE(store->Commit());
  EXPECT_THAT(Texts({}), ElementsAre("a joined", "placed on a", "b joined", "killed", "waits"));
  EXPECT_THAT(Texts({.after = 1, .last = 3}), ElementsAre("placed on a", "b joined"));
  EXPECT_THAT(Texts({.job = JobId(1)}), ElementsAre("placed on a", "killed", "waits"));
  EXPECT_THAT(Texts({.node = "a"}), ElementsAre("a joined", "placed on a", "killed"));
  EXPECT_THAT(Texts({.node = "b"}), ElementsAre("b joined"));
  EXPECT_THAT(Texts({.since_us = 4}), ElementsAre("killed", "waits"));
  EXPECT_THAT(Texts({.most = 2}), ElementsAre("a joined", "placed on a"));
  EXPECT_EQ(*store->LastDecision(), 5U);
}

TEST_F(DecisionStore, TheOldestGoByNumberAndByAgeAndTheNewestStays) {
  for (uint64_t i = 1; i <= 10; ++i) OfNode(i, "a", static_cast<int64_t>(i));
  ASSERT_TRUE(store->Commit());
  ASSERT_TRUE(store->TrimDecisions(4, {0}));
  ASSERT_TRUE(store->Commit());
  EXPECT_EQ(*Reader::Open(folder)->DecisionRange(), (std::pair<uint64_t, uint64_t>{7, 10}));
  ASSERT_TRUE(store->TrimDecisions(100, {9}));
  ASSERT_TRUE(store->Commit());
  EXPECT_EQ(*Reader::Open(folder)->DecisionRange(), (std::pair<uint64_t, uint64_t>{9, 10}));
  ASSERT_TRUE(store->TrimDecisions(100, {1000}));
  EXPECT_TRUE(store->HasWrites());
  ASSERT_TRUE(store->Commit());
  EXPECT_EQ(*Reader::Open(folder)->DecisionRange(), (std::pair<uint64_t, uint64_t>{10, 10}));
  ASSERT_TRUE(store->TrimDecisions(100, {1000}));
  EXPECT_FALSE(store->HasWrites()) << "there is nothing to do";
}

TEST_F(DecisionStore, ANodeThatIsSetAsideComesBackSo) {
  NodeRecord node{.id = NodeId("a"), .agent_id = "x"};
  node.set_aside = {.drain = true, .reason = "bad fan", .actor = "ada", .since = {7}, .told_empty = true};
  store->SaveNode(node);
  NodeRecord other{.id = NodeId("b"), .agent_id = "y"};
  other.strikes = {{JobId(3), "rn50"}, {JobId(5), "vit", true}};
  store->SaveNode(other);
  NodeRecord broken{.id = NodeId("c"), .agent_id = "z"};
  broken.set_aside = {
      .reason = "its log says so", .actor = "scheduler", .since = {8}, .by = AsideBy::kPattern};
  store->SaveNode(broken);
  ASSERT_TRUE(store->Commit());
  const auto stored = store->Load(10);
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->nodes[0].set_aside, node.set_aside);
  EXPECT_FALSE(stored->nodes[1].set_aside.has_value());
  EXPECT_EQ(stored->nodes[1].strikes, other.strikes);
  EXPECT_EQ(stored->nodes[2].set_aside, broken.set_aside);
}

TEST_F(DecisionStore, WhatAJobWasAskedForComesBack) {
  JobRecord job{.id = JobId(2), .name = "rn50", .owner = "ada", .state = JobState::kPreempting};
  job.avoid = {NodeId("a"), NodeId("b")};
  job.rerun_of = JobId(1);
  job.run.stop = StopFor::kDrain;
  job.run.stop_text = "node a is drained by ada";
  job.run.saved = true;
  store->SaveJob(job);
  ASSERT_TRUE(store->Commit());
  const auto back = *store->FindJob(JobId(2));
  EXPECT_EQ(back->avoid, job.avoid);
  EXPECT_EQ(back->rerun_of, JobId(1));
  EXPECT_EQ(back->run.stop, StopFor::kDrain);
  EXPECT_EQ(back->run.stop_text, job.run.stop_text);
  EXPECT_TRUE(back->run.saved);
}

TEST_F(DecisionStore, TheRunsOfANodeSayWhenAndHowTheyEnded) {
  store->SaveJob({.id = JobId(1), .name = "rn50", .owner = "ada"});
  store->SavePlacement({JobId(1), Generation(1)},
                       {{.node = NodeId("a"), .first_rank = 2, .devices = {0, 1}}});
  OfJob(2, JobState::kQueued, JobState::kStarting, "placed on a");
  ASSERT_TRUE(store->Commit());
  auto runs = *Reader::Open(folder)->NodeRuns(NodeId("a"), 10);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].job_name, "rn50");
  EXPECT_EQ(runs[0].first_rank, 2U);
  EXPECT_EQ(runs[0].ranks, 2U);
  EXPECT_EQ(runs[0].started_us, 2);
  EXPECT_EQ(runs[0].ended_us, 0);
  OfJob(3, JobState::kStarting, JobState::kRunning, "trains");
  OfJob(4, JobState::kRunning, JobState::kQueued, "killed");
  OfJob(5, JobState::kQueued, JobState::kCancelled, "cancelled");
  ASSERT_TRUE(store->Commit());
  runs = *Reader::Open(folder)->NodeRuns(NodeId("a"), 10);
  EXPECT_EQ(runs[0].ended_us, 4);
  EXPECT_EQ(runs[0].ended_text, "killed");
  EXPECT_THAT(*Reader::Open(folder)->NodeRuns(NodeId("b"), 10), IsEmpty());
}

TEST_F(DecisionStore, AStartThatRunsSaysUntilWhenItIsCounted) {
  JobRecord job{.id = JobId(1), .owner = "ada", .state = JobState::kRunning, .device_seconds = 7};
  job.run.charged = {60};
  store->SaveJob(job);
  OfJob(2, JobState::kQueued, JobState::kStarting, "placed on a");
  ASSERT_TRUE(store->Commit());
  const auto starts = *Reader::Open(folder)->Starts(0);
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].started_us, 2);
  EXPECT_EQ(starts[0].ended_us, 0);
  EXPECT_EQ(starts[0].counted_us, 60);
}

}  // namespace
}  // namespace imgd
