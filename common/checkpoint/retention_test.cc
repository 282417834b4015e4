#include "common/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "common/checkpoint/summary.h"
#include "common/files.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Retention : public testing::Test {
 protected:
  Retention() {
    std::string pattern = (fs::temp_directory_path() / "retention-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Retention() override { fs::remove_all(root_); }

  /// A complete checkpoint, ten steps to an epoch.
  CheckpointRef Write(uint64_t generation, uint64_t step) {
    auto writer = CheckpointWriter::Begin(root_, generation, step);
    EXPECT_TRUE(writer.has_value());
    const nlohmann::json state = {{"epoch", static_cast<double>(step) / 10}, {"model", "resnet18"}};
    EXPECT_TRUE(writer->Add("state.json", {state.dump()}).has_value());
    auto committed = writer->Commit();
    EXPECT_TRUE(committed.has_value());
    return committed->ref;
  }

  /// The same, validated.
  CheckpointRef Write(uint64_t generation, uint64_t step, double top1) {
    const auto ref = Write(generation, step);
    const nlohmann::json result = {{"step", step}, {"top1", top1}};
    EXPECT_TRUE(WriteFileAtomically(ref.path / "validation.json", result.dump()).has_value());
    return ref;
  }

  std::vector<std::string> All() const {
    std::vector<std::string> out;
    const auto refs = ListCheckpoints(root_);
    for (const auto& ref : *refs) out.push_back(fs::relative(ref.path, root_));
    return out;
  }

  void Prune(const CheckpointRef& newest, const KeepRule& rule) {
    const auto removed = RemoveOldCheckpoints(LocalCheckpoints(root_), newest, rule);
    EXPECT_TRUE(removed.has_value()) << removed.error().ToString();
  }

  fs::path root_;
};

TEST_F(Retention, OnlyTheNewestAreKept) {
  for (const uint64_t step : {10, 20, 30}) Write(1, step);
  Prune(Write(2, 40), {.newest = 2});
  EXPECT_THAT(All(), ElementsAre("g2/step40", "g1/step30"));
  Prune(Write(2, 50), {.newest = 1});
  EXPECT_THAT(All(), ElementsAre("g2/step50"));
  EXPECT_FALSE(fs::exists(root_ / "g1")) << "nothing is left in it";
}

TEST_F(Retention, TheNewestGoodOneStays) {
  for (const uint64_t step : {10, 20, 30}) Write(1, step);
  Prune(Write(2, 40), {.newest = 1, .is_good = [](const auto& summary) { return summary.ref.step < 30; }});
  EXPECT_THAT(All(), ElementsAre("g2/step40", "g1/step20"));
  Prune(Write(2, 50), {.newest = 1, .is_good = [](const auto&) { return false; }});
  EXPECT_THAT(All(), ElementsAre("g2/step50"));
}

TEST_F(Retention, ALaterGenerationsAreNotOursToRemove) {
  Write(3, 10);
  fs::create_directories(root_ / "g3" / "step20");
  Write(1, 10);
  Prune(Write(2, 20), {.newest = 1});
  EXPECT_THAT(All(), ElementsAre("g3/step10", "g2/step20"));
  EXPECT_TRUE(fs::exists(root_ / "g3" / "step20")) << "it is being written";
}

TEST_F(Retention, TheOneJustWrittenStaysThoughADamagedOneHasAHigherStep) {
  Write(0, 200);
  Prune(Write(0, 150), {.newest = 1});
  EXPECT_THAT(All(), ElementsAre("g0/step150"));
}

TEST_F(Retention, WhatAKillLeftUnfinishedGoes) {
  fs::create_directories(root_ / "g1" / "step5");
  fs::create_directories(root_ / "g2" / "step15");
  fs::create_directories(root_ / "logs");
  Prune(Write(2, 20), {.newest = 1});
  EXPECT_FALSE(fs::exists(root_ / "g1"));
  EXPECT_FALSE(fs::exists(root_ / "g2" / "step15"));
  EXPECT_TRUE(fs::exists(root_ / "logs"));
}

TEST_F(Retention, TheBestStaysAndANewBestTakesItsPlace) {
  Write(1, 10, 0.2);
  Write(1, 20, 0.7);
  Write(1, 30, 0.5);
  Prune(Write(1, 40), {.newest = 1, .best = 1});
  EXPECT_THAT(All(), ElementsAre("g1/step40", "g1/step20"));
  Prune(Write(1, 50, 0.8), {.newest = 1, .best = 1});
  EXPECT_THAT(All(), ElementsAre("g1/step50"));
}

TEST_F(Retention, OfEquallyGoodOnesTheNewerStays) {
  Write(1, 10, 0.5);
  Write(1, 20, 0.5);
  Write(1, 30, 0.1);
  Prune(Write(1, 40), {.newest = 1, .best = 2});
  EXPECT_THAT(All(), ElementsAre("g1/step40", "g1/step20", "g1/step10"));
  Prune(Write(1, 50), {.newest = 1, .best = 1});
  EXPECT_THAT(All(), ElementsAre("g1/step50", "g1/step20"));
}

TEST_F(Retention, AResultOfOtherWeightsMakesNoneTheBest) {
  const auto stale = Write(1, 10);
  ASSERT_TRUE(WriteFileAtomically(stale.path / "validation.json", R"({"step": 5, "top1": 0.9})"));
  const auto damaged = Write(1, 20);
  ASSERT_TRUE(WriteFileAtomically(damaged.path / "validation.json", R"({"step": 20, "top1": "high"})"));
  Prune(Write(1, 30), {.newest = 1, .best = 1});
  EXPECT_THAT(All(), ElementsAre("g1/step30"));
}

TEST_F(Retention, EveryNthStaysByEpochsOrBySteps) {
  for (const uint64_t step : {5, 10, 20, 24, 30, 40}) Write(1, step);
  Prune(Write(1, 45), {.newest = 1, .every_epochs = 2, .every_steps = 12});
  EXPECT_THAT(All(), ElementsAre("g1/step45", "g1/step40", "g1/step24", "g1/step20"));
}

TEST_F(Retention, APinnedOneNeverGoes) {
  const auto pinned = Write(1, 10);
  const auto other = Write(1, 20);
  ASSERT_TRUE(PinCheckpoint(pinned.path, "for the paper").has_value());
  Prune(Write(1, 30), {.newest = 1});
  EXPECT_THAT(All(), ElementsAre("g1/step30", "g1/step10"));
  EXPECT_FALSE(*RemoveCheckpoint(pinned.path));
  const auto again = CheckpointWriter::Begin(root_, 1, 10);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(UnpinCheckpoint(pinned.path).has_value());
  EXPECT_TRUE(*RemoveCheckpoint(pinned.path));
  EXPECT_THAT(All(), ElementsAre("g1/step30"));
  EXPECT_THAT(PinCheckpoint(other.path, "too late").error().message, HasSubstr("is no complete checkpoint"));
}

TEST_F(Retention, ARemovalThatWasBrokenOffEndsButNotWhereAPinCameFirst) {
  Write(1, 10);
  Write(1, 20);
  fs::rename(root_ / "g1" / "step10", root_ / "g1" / ".removing-step10");
  fs::rename(root_ / "g1" / "step20", root_ / "g1" / ".removing-step20");
  ASSERT_TRUE(WriteFileAtomically(root_ / "g1" / ".removing-step20" / "pinned", "").has_value());
  EXPECT_TRUE(All().empty());
  Prune(Write(2, 30), {.newest = 1});
  EXPECT_THAT(All(), ElementsAre("g2/step30", "g1/step20"));
  EXPECT_FALSE(fs::exists(root_ / "g1" / ".removing-step10"));
}

TEST_F(Retention, ASummarySaysWhatTheFilesSay) {
  Write(1, 10, 0.25);
  const auto ref = Write(1, 20, 0.5);
  ASSERT_TRUE(PinCheckpoint(ref.path, "").has_value());
  const auto all = SummarizeCheckpoints(LocalCheckpoints(root_));
  ASSERT_EQ(all->size(), 2U);
  const auto& newest = all->front();
  EXPECT_EQ(newest.ref.step, 20U);
  EXPECT_EQ(newest.epoch, 2.0);
  EXPECT_EQ(newest.model, "resnet18");
  EXPECT_EQ(newest.score->top1, 0.5);
  EXPECT_TRUE(newest.pinned);
  EXPECT_TRUE(newest.best);
  EXPECT_FALSE(newest.has_average);
  EXPECT_GT(newest.written_us, 0);
  EXPECT_FALSE(all->back().best);
  EXPECT_FALSE(all->back().pinned);
}

TEST_F(Retention, FilesThatAreDamagedLeaveTheirPartOfASummaryEmpty) {
  const auto ref = Write(1, 10);
  ASSERT_TRUE(WriteFileAtomically(ref.path / "state.json", "[1]").has_value());
  ASSERT_TRUE(WriteFileAtomically(ref.path / "manifest.json", R"({"files": [3, {"name": 4}]})").has_value());
  const auto summary = SummarizeCheckpoint(LocalCheckpoints(root_), ref);
  EXPECT_FALSE(summary.epoch.has_value());
  EXPECT_EQ(summary.size_bytes, 0U);
}

}  // namespace
}  // namespace imgd
