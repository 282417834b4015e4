#include "server/core/trial.h"

#include <gmock/gmock.h>

#include <optional>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A gang of one rank on each of the nodes a, b, ..., whose addresses are their names.
std::vector<std::string> Blamed(uint32_t nodes, const std::vector<RankPulse>& pulses) {
  Run run;
  std::vector<PartNode> known;
  for (uint32_t i = 0; i < nodes; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    run.parts.push_back({.node = NodeId(name), .first_rank = i, .devices = {0}});
    known.push_back({.address = name});
  }
  GangPulses heard;
  for (const auto& pulse : pulses) heard[pulse.rank] = {.pulse = pulse};
  std::vector<std::string> out;
  for (const auto& node : BlamedNodes(run, known, heard)) out.push_back(node.name());
  return out;
}

RankPulse InTrial(uint32_t rank, const std::string& unanswered = "", uint64_t collectives = 1) {
  return {.rank = rank, .collectives = collectives, .what = "trial all-reduce", .unanswered = unanswered};
}

TEST(Trial, TheNodeThatMostOthersBlameIsIt) {
  const struct {
    const char* what;
    uint32_t nodes;
    std::vector<RankPulse> pulses;
    std::vector<std::string> blamed;
  } cases[] = {
      {"nobody says anything", 2, {}, {}},
      {"all wait, and nobody knows for whom", 3, {InTrial(0), InTrial(1), InTrial(2)}, {}},
      {"two get no answer from b, which gets none from a",
       3,
       {InTrial(0, "b"), InTrial(1, "a"), InTrial(2, "b")},
       {"b"}},
      {"of two each blames the other", 2, {InTrial(0, "b"), InTrial(1, "a")}, {"a", "b"}},
      {"each of three blames another", 3, {InTrial(0, "b"), InTrial(1, "c"), InTrial(2, "a")}, {}},
      {"c did not come to it", 3, {InTrial(0), InTrial(1), InTrial(2, "", 0)}, {"c"}},
      {"c was never heard of", 3, {InTrial(0), InTrial(1)}, {"c"}},
      {"an address that is nobody's", 2, {InTrial(0, "x"), InTrial(1)}, {}},
  };
  for (const auto& c : cases) EXPECT_EQ(Blamed(c.nodes, c.pulses), c.blamed) << c.what;
}

struct TrialOfAGang : testing::Test {
  /// The job's gang begins, and breaks in its trial; these ranks got no answer from these nodes. With `own`
  /// a rank ended so, by itself, and the others' collectives break for that.
  void Breaks(JobId job, const std::map<uint32_t, std::string>& unanswered,
              const std::optional<RankExit>& own = {}) {
    for (int i = 0; i < 70 && cluster.Job(job).state == JobState::kQueued; ++i) cluster.Pass(seconds(1));
    ASSERT_EQ(cluster.Job(job).state, JobState::kStarting);
    const auto parts = cluster.Job(job).run.parts;
    cluster.Prepared(parts[0].node.name(), job);
    for (const auto& part : parts) cluster.Runs(part.node.name(), job);
    for (const auto& part : parts) {
      const auto of = unanswered.find(part.first_rank);
      const std::string from = of == unanswered.end() ? "" : cluster.Node(of->second).address;
      cluster.Pulses(part.node.name(), job, {InTrial(part.first_rank, from)});
    }
    for (const auto& part : parts) {
      const bool is_own = own && own->rank == part.first_rank;
      cluster.Ends(part.node.name(), job, {is_own ? *own : ExitCode(part.first_rank, 10)});
    }
    cluster.Pass(seconds(6));  // its retry has begun
  }
  std::vector<std::string> NodesOf(JobId job) {
    std::vector<std::string> out;
    for (const auto& part : cluster.Job(job).run.parts) out.push_back(part.node.name());
    return out;
  }
  TestCluster cluster;
};

TEST_F(TrialOfAGang, TheNextStartIsOnOtherNodesWhereThereAreSome) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 3});
  Breaks(job, {{0, "b"}, {1, "a"}, {2, "b"}});
  EXPECT_THAT(NodesOf(job), ElementsAre("a", "c", "d"));
  EXPECT_THAT(cluster.Node("b").strikes, testing::SizeIs(1));
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
  EXPECT_EQ(cluster.Job(job).failures, 0u) << "it is not the job's fault";
}

TEST_F(TrialOfAGang, OfTwoThatBlameEachOtherTheOneIsFoundByTheSecondTrial) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  Breaks(job, {{0, "b"}, {1, "a"}});
  ASSERT_THAT(NodesOf(job), ElementsAre("a", "c")) << "not enough for both to be avoided";
  Breaks(job, {{0, "c"}, {1, "a"}});
  EXPECT_THAT(NodesOf(job), ElementsAre("b", "c"));
}

TEST_F(TrialOfAGang, WithoutOtherNodesItIsTriedOnTheSame) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  Breaks(job, {{0, "b"}});
  for (int i = 0; i < 70 && cluster.Job(job).state == JobState::kQueued; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(NodesOf(job), ElementsAre("a", "b"));
}

TEST_F(TrialOfAGang, OfWhatARankDiedOfByItselfTheGangBlamesNoNode) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  const RankExit crash = ExitCode(1, 1, "IndexError: label 1000");
  Breaks(job, {{0, "b"}}, crash);
  EXPECT_THAT(NodesOf(job), ElementsAre("a", "b"));
  Breaks(job, {{0, "b"}}, crash);
  ASSERT_THAT(NodesOf(job), ElementsAre("a", "c")) << "it crashed twice on b";
  Breaks(job, {{0, "c"}}, crash);
  EXPECT_THAT(cluster.Node("b").strikes, IsEmpty()) << "it crashes on others too";
  EXPECT_THAT(cluster.Node("c").strikes, IsEmpty());
}

TEST_F(TrialOfAGang, AJobThatIsNotTriedAgainBlamesNoNode) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  RankExit told = ExitCode(1, 1, "out of memory");
  told.match = LogMatch{
      .pattern = "p", .label = "it is full", .line = "out of memory", .action = PatternAction::kNoRetry};
  for (const RankExit& own : {ExitCode(1, 2, "no such folder"), told}) {
    const JobId job = cluster.Submit("rn50", {.nodes = 2});
    Breaks(job, {{0, "b"}}, own);
    EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
    EXPECT_THAT(cluster.Job(job).reason.text, Not(HasSubstr("got no answer")));
    EXPECT_THAT(cluster.Node("b").strikes, IsEmpty());
  }
}

TEST_F(TrialOfAGang, ANodeThatThreeJobsBlameIsSetAside) {
  for (const char* node : {"a", "b", "c", "d", "e", "f", "g"}) cluster.Join(node, 1);
  for (const char* name : {"one", "two", "three"}) {
    const JobId job = cluster.Submit(name, {.nodes = 3});
    ASSERT_THAT(NodesOf(job), ElementsAre("a", "b", "c"));
    Breaks(job, {{0, "b"}, {2, "b"}});
    ASSERT_TRUE(cluster.Cancel(job).has_value());
    const auto parts = cluster.Job(job).run.parts;
    if (cluster.Job(job).HoldsDevices()) {
      for (const auto& part : parts) cluster.Ends(part.node.name(), job, {Killed(part.first_rank, 15)});
    }
  }
  EXPECT_TRUE(cluster.Node("b").set_aside);
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("node b is set aside: 3 different jobs failed there")));
}

}  // namespace
}  // namespace imgd
