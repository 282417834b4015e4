#include <gmock/gmock.h>

#include "server/rpc/limits.h"
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

}  // namespace
}  // namespace imgd
