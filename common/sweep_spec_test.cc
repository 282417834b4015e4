#include "common/sweep_spec.h"

#include <gmock/gmock.h>

#include <set>

#include "common/sweep_members.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kBase = "name: rn18\ndata: {train: /x, val: /v}\ntrain: {epochs: 30}\n";

JobSpec SpecOf(const std::string& sweep) {
  auto spec = ParseJobFile(kBase + sweep, "job.yaml");
  if (!spec) {
    ADD_FAILURE() << spec.error().front().ToString();
    return {};
  }
  return std::move(*spec);
}

std::vector<std::string> TextsOf(const std::string& sweep) {
  std::vector<std::string> out;
  for (const auto& values : ExpandSweep(*SpecOf(sweep).sweep)) out.push_back(SweepText(values));
  return out;
}

TEST(SweepSpec, AGridIsEveryCombinationTheLastFastest) {
  EXPECT_THAT(TextsOf("sweep: {grid: {optimizer.lr: [0.1, 0.2], seed: [1, 2]}}\n"),
              ElementsAre("optimizer.lr=0.1, seed=1", "optimizer.lr=0.1, seed=2", "optimizer.lr=0.2, seed=1",
                          "optimizer.lr=0.2, seed=2"));
}

TEST(SweepSpec, AListIsWhatItSays) {
  EXPECT_THAT(
      TextsOf("sweep:\n  list:\n    - {optimizer.lr: 0.1, model.name: resnet18}\n"
              "    - schedule: {kind: step, milestones: [10, 20]}\n"),
      ElementsAre("optimizer.lr=0.1, model.name=resnet18", "schedule={kind: step, milestones: [10, 20]}"));
}

TEST(SweepSpec, DrawsAreWithinTheirBoundsAndTheSameForTheSameSeed) {
  const std::string params =
      ", params: {optimizer.lr: {log_uniform: [1e-4, 1e-1]}, optimizer.momentum: {uniform: [0.8, 0.99]}, "
      "augment.ops: {int_uniform: [1, 3]}, model.name: {choice: [resnet18, resnet34]}}}}\n";
  const auto spec = SpecOf("sweep: {random: {n: 500, seed: 7" + params);
  std::set<std::string> ops, models;
  size_t small = 0;
  for (const auto& values : ExpandSweep(*spec.sweep)) {
    const double lr = std::stod(values[0].value), momentum = std::stod(values[1].value);
    EXPECT_THAT(lr, AllOf(testing::Ge(1e-4), testing::Le(1e-1)));
    EXPECT_THAT(momentum, AllOf(testing::Ge(0.8), testing::Le(0.99)));
    ops.insert(values[2].value);
    models.insert(values[3].value);
    small += lr < 1e-3 ? 1 : 0;
  }
  EXPECT_THAT(ops, ElementsAre("1", "2", "3"));
  EXPECT_THAT(models, ElementsAre("resnet18", "resnet34"));
  EXPECT_THAT(small, AllOf(testing::Gt(130u), testing::Lt(205u))) << "a third of the decades";

  const auto few = TextsOf("sweep: {random: {n: 5, seed: 7" + params);
  const auto more = TextsOf("sweep: {random: {n: 9, seed: 7" + params);
  EXPECT_EQ(few, std::vector<std::string>(more.begin(), more.begin() + 5))
      << "more draws begin with the same";
  EXPECT_NE(few, TextsOf("sweep: {random: {n: 5, seed: 8" + params));
}

TEST(SweepMembers, HaveFilesOfTheirOwn) {
  const std::string text = std::string(kBase) +
                           "sweep: {grid: {optimizer.lr: [0.1, 0.2], schedule.milestones: [[3, 6]], "
                           "schedule.kind: [step]}, max_running: 1}\n";
  const auto members = MakeSweepMembers(text, "job.yaml", *ParseJobFile(text, "job.yaml"));
  ASSERT_TRUE(members.has_value()) << members.error().front().ToString();
  ASSERT_EQ(members->size(), 2u);
  EXPECT_EQ((*members)[1].spec.optimizer.lr, 0.2);
  EXPECT_THAT((*members)[1].spec.schedule.milestones, ElementsAre(3, 6));
  EXPECT_FALSE((*members)[1].spec.sweep.has_value());
  EXPECT_EQ((*members)[1].spec.train.epochs, 30);
}

std::string MemberErrors(const std::string& sweep) {
  const std::string text = kBase + sweep;
  const auto spec = ParseJobFile(text, "job.yaml");
  if (!spec) return spec.error().front().ToString();
  const auto members = MakeSweepMembers(text, "job.yaml", *spec);
  return members ? "" : members.error().front().ToString();
}

TEST(SweepMembers, AnErrorNamesTheMember) {
  EXPECT_THAT(MemberErrors("sweep: {grid: {optimizer.lr: [0.1, -1]}}\n"),
              HasSubstr("sweep member 2 (optimizer.lr=-1): optimizer.lr: found '-1' where a number from"));
  EXPECT_THAT(
      MemberErrors("sweep: {list: [{optimizer.lrr: 0.1}]}\n"),
      HasSubstr("sweep member 1 (optimizer.lrr=0.1): optimizer.lrr: unknown key (did you mean 'lr'?)"));
  EXPECT_THAT(MemberErrors("sweep: {list: [{name.x: 0.1}]}\n"), HasSubstr("name.x: goes through 'rn18'"));
  const auto other = MemberErrors("sweep: {grid: {resources.nodes: [1, 3]}}\n");
  EXPECT_THAT(other,
              AllOf(HasSubstr("train.global_batch"), HasSubstr("(sweep member 2 (resources.nodes=3))")));
}

}  // namespace
}  // namespace imgd
