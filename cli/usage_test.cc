#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class UsageCommand : public testing::Test {
 protected:
  UsageCommand() {
    v1::ListUsageResponse usage;
    usage.set_currency("EUR");
    auto& ada = *usage.add_accounts();
    ada.set_kind(v1::ACCOUNT_KIND_USER);
    ada.set_name("ada");
    ada.set_devices(8);
    ada.set_most_devices(16);
    ada.set_queued(3);
    ada.set_recent_device_hours(41.25);
    ada.set_share(2.5);
    ada.mutable_device_hours()->set_period(v1::QUOTA_PERIOD_WEEK);
    ada.mutable_device_hours()->set_used(12.5);
    ada.mutable_spend()->set_period(v1::QUOTA_PERIOD_MONTH);
    ada.mutable_spend()->set_used(100.2);
    ada.mutable_spend()->set_most(100);
    ada.mutable_spend()->set_until_us(1'796'083'200'000'000);
    auto& vision = *usage.add_accounts();
    vision.set_kind(v1::ACCOUNT_KIND_PROJECT);
    vision.set_name("vision");
    vision.mutable_device_hours()->set_period(v1::QUOTA_PERIOD_TOTAL);
    vision.mutable_device_hours()->set_used(30);
    vision.mutable_device_hours()->set_most(40);
    vision.mutable_spend()->set_period(v1::QUOTA_PERIOD_MONTH);
    auto& tiny = *usage.add_accounts();
    tiny.set_kind(v1::ACCOUNT_KIND_PROJECT);
    tiny.set_name("tiny");
    tiny.mutable_device_hours()->set_period(v1::QUOTA_PERIOD_DAY);
    tiny.mutable_device_hours()->set_used(0.0021);
    tiny.mutable_device_hours()->set_most(0.003);
    daemon_.PutUsage(usage);
  }
  CliResult Ask(std::vector<std::string> arguments) {
    return RunCli(CallTo(daemon_.address(), std::move(arguments)));
  }
  FakeDaemon daemon_;
};

TEST_F(UsageCommand, ShowsWhatWasUsedWhatMayBeAndWhatIsLeft) {
  const auto done = Ask({"usage"});
  EXPECT_EQ(done.exit_code, 0);
  const auto lines = Lines(done.out);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[0],
              ContainsRegex("KIND +NAME +DEVICES +WAITING +DEVICE-HOURS +LEFT +SPENT, EUR +LEFT +ANEW FROM"));
  EXPECT_THAT(lines[1],
              ContainsRegex("user +ada +8 of 16 +3 +12.50 this week +- +100.20 of 100 this month +0.00 +20"));
  EXPECT_THAT(lines[2],
              ContainsRegex("project +vision +0 +0 +30.00 of 40 in all +10.00 +0.00 this month +- +-"));
  EXPECT_THAT(lines[3], ContainsRegex("project +tiny +0 +0 +0.0021 of 0.003 today +0.0009 +0.00"));
}

TEST_F(UsageCommand, WhatAJobCostIsInTheOperatorsCurrency) {
  auto job = MakeJob(5, "rn50", v1::JOB_STATE_COMPLETED);
  job.set_device_hours(2.5);
  job.set_cost(7.25);
  daemon_.PutJob(job);
  EXPECT_THAT(Ask({"show", "5"}).out, HasSubstr("2.50 device-hours, cost 7.25 EUR"));
}

TEST_F(UsageCommand, OfOneKindAndForPrograms) {
  EXPECT_THAT(Ask({"usage", "--by", "project"}).out, Not(HasSubstr("ada")));
  const auto wide = Lines(Ask({"usage", "--by", "user", "-o", "wide"}).out);
  ASSERT_THAT(wide, SizeIs(2));
  EXPECT_THAT(wide[0], ContainsRegex("RECENT HOURS +SHARE"));
  EXPECT_THAT(wide[1], ContainsRegex("41.25 +2.5"));
  const auto json = nlohmann::json::parse(Ask({"usage", "-o", "json"}).out);
  EXPECT_EQ(json["accounts"][0]["spend"]["used"], 100.2);
  EXPECT_EQ(Ask({"usage", "--by", "node"}).exit_code, 2);
}

}  // namespace
}  // namespace imgd::cli
