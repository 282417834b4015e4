#include "agent/node_key.h"

#include <gmock/gmock.h>

#include "agent/testing/temp_dir.h"
#include "common/files.h"

namespace imgd {
namespace {

using testing::HasSubstr;

constexpr int64_t kHourMicros = 3600LL * 1'000'000;

TEST(NodeKey, AClockThatIsOffIsNamedWithHowFar) {
  const tls::CertificateFacts facts{.not_before = {100 * kHourMicros}, .not_after = {125 * kHourMicros}};
  const int64_t imgd_us = 101 * kHourMicros;
  EXPECT_TRUE(CheckClock(facts, {imgd_us}, imgd_us));
  EXPECT_TRUE(CheckClock(facts, {100 * kHourMicros}, imgd_us)) << "an hour behind does not matter";
  EXPECT_THAT(CheckClock(facts, {99 * kHourMicros}, imgd_us).error().message,
              HasSubstr("this node's clock is 7200 s behind imgd's"));
  EXPECT_THAT(CheckClock(facts, {125 * kHourMicros}, imgd_us).error().message,
              HasSubstr("is 86400 s ahead of imgd's"));
}

TEST(NodeKey, WithoutACertificateAndATokenItSaysHowToJoin) {
  const TempDir folder;
  const SystemClock clock;
  NodeKey key(
      {.server = "127.0.0.1:1", .node = "a", .agent_id = "x", .folder = folder.path(), .token_file = {}},
      &clock);
  const auto nothing = key.Get();
  ASSERT_FALSE(nothing.has_value());
  EXPECT_THAT(nothing.error().message, HasSubstr("has not joined imgd at 127.0.0.1:1"));
  EXPECT_THAT(nothing.error().hint, HasSubstr("imgcli node join-token"));
  EXPECT_FALSE(key.UntilDue().has_value());
}

TEST(NodeKey, AFileWithoutAJoinTokenIsNamed) {
  const TempDir folder;
  const SystemClock clock;
  const auto file = folder.path() / "token";
  ASSERT_TRUE(WriteFileAtomically(file, "imgd_1234\n"));
  NodeKey key(
      {.server = "127.0.0.1:1", .node = "a", .agent_id = "x", .folder = folder.path(), .token_file = file},
      &clock);
  EXPECT_THAT(key.Get().error().message, HasSubstr(file.native() + ": this is no join token"));
}

}  // namespace
}  // namespace imgd
