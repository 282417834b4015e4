#include "server/notify/sendmail.h"

#include <gmock/gmock.h>

#include <thread>

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Result<std::string> Shell(const std::string& script, Duration timeout = seconds(60),
                          const std::stop_token& stop = {}) {
  return RunWithInput({"/bin/sh", "-c", script, "sendmail"}, "Subject: x\n\nhello\n", timeout, stop);
}

TEST(Sendmail, GetsTheMessageAndItsEnd) {
  EXPECT_TRUE(Shell("test \"$(tail -1)\" = hello").has_value());
  EXPECT_TRUE(Shell("exit 0").has_value()) << "one that reads nothing";
}

TEST(Sendmail, HasNoSignalBlockedAndNoOtherFile) {
  EXPECT_TRUE(Shell("grep -q 'SigBlk:.0000000000000000' /proc/self/status").has_value());
  EXPECT_TRUE(Shell("cd /proc/$$/fd && set -- [0-9]* && test $# -le 4").has_value());
}

TEST(Sendmail, SaysHowItFailed) {
  const auto failed = Shell("echo first >&2; echo no such user >&2; exit 67");
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "/bin/sh ended with exit code 67: no such user");
  EXPECT_FALSE(RunWithInput({"/no/such/sendmail"}, "", seconds(60), {}).has_value());
}

TEST(Sendmail, OnlyThatThereIsNoSuchUserIsForGood) {
  EXPECT_EQ(Shell("exit 67").error().code, ErrorCode::kInvalidArgument);
  for (const int code : {1, 64, 65, 68, 69, 75})
    EXPECT_EQ(Shell(fmt::format("exit {}", code)).error().code, ErrorCode::kUnavailable) << code;
  EXPECT_EQ(Shell("kill -9 $$").error().code, ErrorCode::kUnavailable);
}

TEST(Sendmail, IsHeardToItsEndHoweverMuchItSays) {
  const std::string talks =
      "i=0; while test $i -lt 3000; do echo line $i of many, many words >&2; i=$((i+1)); done; ";
  const auto failed = Shell(talks + "echo mailbox full >&2; exit 1");
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "/bin/sh ended with exit code 1: mailbox full");
  EXPECT_EQ(Shell(talks + "echo queued for later >&2"), "queued for later");
  EXPECT_EQ(Shell("exit 0"), "");
}

TEST(Sendmail, IsEndedWithItsChildrenWhenItTakesTooLong) {
  const auto late = Shell("echo no route to host >&2; sleep 600 & wait", seconds(2));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(late.error().message, "/bin/sh took too long and was ended: no route to host");
}

TEST(Sendmail, OneThatNeverStopsTalkingIsEndedToo) {
  const auto late = Shell("while :; do echo and on; done >&2", std::chrono::milliseconds(300));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(Sendmail, AStopEndsItSoon) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(Shell("exec sleep 600", seconds(600), stop.get_token()).has_value());
}

}  // namespace
}  // namespace imgd
