#include "server/engine/agent_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/release.h"

namespace imgd {
namespace {

using testing::HasSubstr;

bool Works(std::string_view imgd, std::string_view agent) {
  return CheckAgentVersion(imgd, agent).has_value();
}

TEST(AgentVersion, ThoseOfTheSameMinorVersionAndOfTheOneBeforeAreTaken) {
  EXPECT_TRUE(Works("0.4.1", "0.4.1"));
  EXPECT_TRUE(Works("0.4.1", "0.4.9~git20260131120000.1a2b3c4"));
  EXPECT_TRUE(Works("0.4.1", "0.3.7"));
  EXPECT_FALSE(Works("0.4.1", "0.2.9"));
  EXPECT_FALSE(Works("0.4.1", "0.5.0"));
  EXPECT_FALSE(Works("1.1.0", "0.1.0"));
  EXPECT_FALSE(Works("1.3.0", "2.0.0"));
  EXPECT_FALSE(Works("0.0.3", "1.0.0"));
}

TEST(AgentVersion, BeforeTheFirstOfAMajorVersionIsTheMajorVersionBefore) {
  EXPECT_TRUE(Works("2.0.1", "1.9.0"));
  EXPECT_FALSE(Works("2.0.1", "0.9.0"));
  EXPECT_FALSE(Works("2.1.0", "1.9.0"));
}

TEST(AgentVersion, WhatIsNoNumberIsNotJudged) {
  for (const char* version : {"", "test", "1", "1.", ".1", "v1.2.3"})
    EXPECT_TRUE(Works("0.4.1", version)) << version;
  EXPECT_TRUE(Works("test", "0.1.0"));
}

TEST(AgentVersion, TheWordsSayWhoIsToDoWhat) {
  const auto old = CheckAgentVersion("0.4.1", "0.2.9");
  ASSERT_FALSE(old.has_value());
  EXPECT_EQ(old.error().message,
            "imgagent 0.2.9 is too old for imgd 0.4.1, which works with agents of 0.4 and 0.3");
  EXPECT_THAT(old.error().hint, HasSubstr("on the node"));
  const auto fresh = CheckAgentVersion("2.0.0", "2.1.0");
  ASSERT_FALSE(fresh.has_value());
  EXPECT_EQ(fresh.error().message,
            "imgagent 2.1.0 is too new for imgd 2.0.0, which works with agents of 2.0 and of version 1");
  EXPECT_THAT(fresh.error().hint, HasSubstr("imgd first"));
}

TEST(Release, ATrainerThatDoesNotFitIsNamedWithWhatDoes) {
  EXPECT_EQ(WhyNotFit({"imgd", "0.4.1"}, {"imgtrain", "0.3.0"}, "trainers"), "");
  EXPECT_EQ(WhyNotFit({"imgd", "0.4.1"}, {"imgtrain", ""}, "trainers"), "") << "one that does not say it";
  EXPECT_EQ(WhyNotFit({"imgd", "0.4.1"}, {"imgtrain", "0.2.9"}, "trainers"),
            "imgtrain 0.2.9 is too old for imgd 0.4.1, which works with trainers of 0.4 and 0.3");
  EXPECT_EQ(WhyNotFit({"imgd", "0.0.3"}, {"imgtrain", "0.1.0"}, "trainers"),
            "imgtrain 0.1.0 is too new for imgd 0.0.3, which works with trainers of 0.0");
}

}  // namespace
}  // namespace imgd
