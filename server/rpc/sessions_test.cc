#include <gmock/gmock.h>

#include "server/rpc/limits.h"
#include "server/rpc/note_limit.h"
#include "server/rpc/session_words.h"

namespace imgd {
namespace {

using testing::HasSubstr;

TEST(SessionWords, SayWhatSomebodyDoesAndWhere) {
  v1::SessionBegin begin;
  begin.set_node("a");
  begin.mutable_command();
  EXPECT_EQ(WhatOf(begin), "a shell");
  begin.mutable_command()->add_arguments("echo");
  begin.mutable_command()->add_arguments("two\nlines");
  EXPECT_EQ(WhatOf(begin), "`echo two lines`");
  begin.mutable_command()->add_arguments(std::string(1000, 'x'));
  EXPECT_LT(WhatOf(begin).size(), 300U);
  v1::SessionBegin forward;
  forward.mutable_rank()->set_job_id(7);
  forward.mutable_forward();
  EXPECT_EQ(WhatOf(forward), "forwarding to TensorBoard beside rank 0 of job 7");
  forward.mutable_forward()->set_port(8888);
  EXPECT_EQ(WhatOf(forward), "forwarding to port 8888 beside rank 0 of job 7");
}

TEST(SessionWords, SayHowItEnded) {
  v1::SessionEnd end;
  end.set_exit_code(3);
  EXPECT_EQ(HowOf(end), "exit code 3");
  end.set_signal(9);
  EXPECT_EQ(HowOf(end), "signal 9");
  end.set_error("rank 0 of job 7 has ended");
  EXPECT_EQ(HowOf(end), "rank 0 of job 7 has ended");
}

TEST(SessionWords, ThoseWithoutAnEndAreFoundByTheirRecords) {
  const auto decision = [](ReasonCode reason, const SessionNote& note) {
    return StoredDecision{
        .job = note.job,
        .generation = Generation(),
        .node = note.node.name(),
        .reason = static_cast<int>(reason),
        .text = reason == ReasonCode::kSessionBegun ? note.Begun() : note.Over() + " after 1 s: x",
        .actor = "user:" + note.actor};
  };
  const SessionNote shell{.job = JobId(7), .node = NodeId("a"), .actor = "ada", .what = "a shell"};
  const SessionNote other{.job = JobId(), .node = NodeId("b"), .actor = "bob", .what = "`x on node y`"};
  const auto begins = ReasonCode::kSessionBegun;
  const auto ends = ReasonCode::kSessionEnded;
  EXPECT_TRUE(LeftOpen({decision(begins, shell), decision(begins, other), decision(ends, other),
                        decision(ends, shell)})
                  .empty());
  const auto open = LeftOpen(
      {decision(begins, shell), decision(begins, shell), decision(begins, other), decision(ends, shell)});
  ASSERT_EQ(open.size(), 2U);
  EXPECT_EQ(open[0].Over(), "a shell on node a, of ada, is over");
  EXPECT_EQ(open[0].job, JobId(7));
  EXPECT_EQ(open[1].Over(), "`x on node y` on node b, of bob, is over");
}

TEST(NoteLimit, NobodyFillsTheRecordByLooking) {
  NoteLimit limit;
  const Instant start{};
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(limit.MayNote("ada", start));
  EXPECT_FALSE(limit.MayNote("ada", start + std::chrono::seconds(59)));
  EXPECT_TRUE(limit.MayNote("bob", start));
  EXPECT_TRUE(limit.MayNote("ada", start + std::chrono::minutes(1)));
}

TEST(SessionLimits, OnePlaceAndOneThingToDoAreNeeded) {
  v1::SessionBegin begin;
  begin.mutable_command();
  EXPECT_THAT(CheckLimits(begin).error().message, HasSubstr("place: missing"));
  begin.set_node("a");
  EXPECT_TRUE(CheckLimits(begin));
  begin.mutable_forward();
  EXPECT_FALSE(CheckLimits(begin));
  begin.clear_command();
  EXPECT_TRUE(CheckLimits(begin));
  begin.mutable_forward()->set_port(70'000);
  EXPECT_THAT(CheckLimits(begin).error().message, HasSubstr("forward.port: found 70000"));
  begin.clear_forward();
  EXPECT_FALSE(CheckLimits(begin));
  begin.set_parent("imgd_x");
  EXPECT_TRUE(CheckLimits(begin));
  begin.mutable_command()->add_arguments(std::string(200'000, 'x'));
  EXPECT_FALSE(CheckLimits(begin));
}

TEST(SessionLimits, AFrameIsBounded) {
  v1::SessionFrame frame;
  frame.set_input(std::string(256 << 10, 'x'));
  EXPECT_TRUE(CheckLimits(frame));
  frame.set_output(std::string((256 << 10) + 1, 'x'));
  EXPECT_THAT(CheckLimits(frame).error().message,
              HasSubstr("found 262145 bytes; at most 262144 are allowed"));
}

TEST(SessionWords, NeitherWordsNorErrorsMoveACursor) {
  v1::SessionBegin begin;
  begin.mutable_command()->add_arguments(
      "a\x1b[2J\xc2\x9b"
      "b");
  EXPECT_EQ(WhatOf(begin), "`a [2J b`");
  v1::SessionEnd end;
  end.set_error("x\ny\xc2\x9bz");
  EXPECT_EQ(HowOf(end), "x y z");
}

}  // namespace
}  // namespace imgd
