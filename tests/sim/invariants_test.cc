#include <gmock/gmock.h>

#include <algorithm>
#include <string_view>

#include "tests/sim/world.h"

/// Rules that no fault in the core has broken yet (see the table of mutants): that they can be.
namespace imgd::sim {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Rules : testing::Test {
  /// What that rule alone says of the commit, as the 64th, at which every rule looks.
  std::vector<std::string> Says(std::string_view rule, const Actions& actions,
                                const std::vector<JobId>& touched) {
    const auto& all = Invariants();
    const auto one = std::find_if(all.begin(), all.end(), [rule](const auto& r) { return r.name == rule; });
    EXPECT_NE(one, all.end()) << rule;
    world.ledger.checks = 64;
    const size_t before = world.findings().size();
    one->check(world, {.actions = actions, .touched = touched}, one->name);
    std::vector<std::string> out;
    for (size_t i = before; i < world.findings().size(); ++i) out.push_back(world.findings()[i].text);
    return out;
  }
  const JobRecord& AJobThatIs(JobState state) {
    const auto& jobs = world.daemon.reactor().state().jobs();
    const auto job = std::find_if(jobs.begin(), jobs.end(),
                                  [state](const auto& one) { return one.second.state == state; });
    return job->second;
  }
  /// Of its jobs some have completed, and one can't have the nodes that it waits for.
  static constexpr uint64_t kSeed = 0;
  World world{kSeed, ShapeOf(kSeed), false};

  void SetUp() override { ASSERT_THAT(world.Live(), IsEmpty()); }
};

TEST_F(Rules, AJobThatHadEndedAndIsNotWhatItWasIsFound) {
  const JobRecord& job = AJobThatIs(JobState::kCompleted);
  EXPECT_THAT(Says("final is final", {}, {job.id}), IsEmpty());
  world.ledger.jobs[job.id].state = JobState::kCancelled;
  EXPECT_THAT(Says("final is final", {}, {job.id}), ElementsAre(HasSubstr("was CANCELLED and is COMPLETED")));
}

TEST_F(Rules, ACheckpointOfAnOlderGenerationIsFound) {
  const JobRecord& job = AJobThatIs(JobState::kCompleted);
  const auto of = [&job](uint64_t generation) {
    return SaveCheckpoint{.job = job.id, .checkpoint = {.generation = Generation(generation)}};
  };
  const uint64_t latest = job.generation.value();
  EXPECT_THAT(Says("one generation commits", {of(latest)}, {job.id}), IsEmpty());
  EXPECT_THAT(Says("one generation commits", {of(latest - 1)}, {job.id}),
              ElementsAre(HasSubstr("took a checkpoint of generation")));
}

TEST_F(Rules, AnAcknowledgedJobThatIsNowhereIsFound) {
  EXPECT_THAT(Says("acknowledged is kept", {}, {}), IsEmpty());
  world.ledger.Acknowledged(JobId(1'000'000));
  EXPECT_THAT(Says("acknowledged is kept", {}, {}), ElementsAre("job 1000000 is lost"));
}

TEST_F(Rules, WhoIsTheFirstForLongerThanTheBoundIsFound) {
  const JobRecord& job = AJobThatIs(JobState::kQueued);
  world.ledger.foreign.clear();
  world.ledger.longest_hold = hours(1);
  world.ledger.promise = {.job = job.id, .first_since = world.time.now().steady - hours(1)};
  EXPECT_THAT(Says("nobody starves", {}, {}), IsEmpty());
  world.ledger.promise->first_since = world.time.now().steady - hours(1'000);
  EXPECT_THAT(Says("nobody starves", {}, {}), ElementsAre(HasSubstr("has been the first for longer")));
}

}  // namespace
}  // namespace imgd::sim
