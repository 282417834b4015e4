#include "server/notify/notices.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using enum NoticeEvent;

AppendEvent Changed(JobState from, JobState to, ReasonCode why) {
  return {.job = JobId(12),
          .generation = Generation(3),
          .from = from,
          .to = to,
          .reason = {why, "rank 1 on b failed: exit code 1"},
          .actor = "scheduler",
          .time = {1'800'000'000'123'456}};
}

JobRecord TheJob() {
  JobRecord job;
  job.id = JobId(12);
  job.name = "rn50";
  job.owner = "ada";
  job.project = "vision";
  job.restarts = 2;
  job.submitted = {1'799'999'000'000'000};
  job.started = {1'799'999'100'000'000};
  return job;
}

NotifyConfig Targets() {
  NotifyConfig config;
  for (const char* name : {"ops", "mail", "chat"}) config.targets[name] = {};
  return config;
}

TEST(Notices, AreOfEndsAndOfLostDevices) {
  using enum JobState;
  EXPECT_EQ(NoticeEventOf(Changed(kRunning, kCompleted, ReasonCode::kFinished)), kFinished);
  EXPECT_EQ(NoticeEventOf(Changed(kRunning, kFailed, ReasonCode::kRankFailed)), NoticeEvent::kFailed);
  EXPECT_EQ(NoticeEventOf(Changed(kPreempting, kQueued, ReasonCode::kPreempted)), kPreempted);
  EXPECT_EQ(NoticeEventOf(Changed(kPreempting, kQueued, ReasonCode::kSpotNotice)), kPreempted);
  EXPECT_EQ(NoticeEventOf(Changed(kRunning, kQueued, ReasonCode::kRankStuck)), kStalled);
}

TEST(Notices, AreNotOfWhatPeopleDidOrOfWhatIsToldAlready) {
  using enum JobState;
  EXPECT_EQ(NoticeEventOf(Changed(kRunning, kCancelled, ReasonCode::kCancelledByUser)), std::nullopt);
  EXPECT_EQ(NoticeEventOf(Changed(kPreempting, kQueued, ReasonCode::kMovedByUser)), std::nullopt);
  EXPECT_EQ(NoticeEventOf(Changed(kRunning, kPreempting, ReasonCode::kPreempted)), std::nullopt);
  EXPECT_EQ(NoticeEventOf(Changed(kFailed, kFailed, ReasonCode::kRankFailed)), std::nullopt);
  EXPECT_EQ(NoticeEventOf(Changed(kQueued, kQueued, ReasonCode::kPreempted)), std::nullopt);
}

TEST(Notices, RulesAreStoredAsText) {
  const std::vector<NotifyRule> rules = {{"ops", {NoticeEvent::kFailed, kStalled}}, {"mail", {kFinished}}};
  EXPECT_EQ(EncodeRules(rules), "ops:failed,stalled mail:finished");
  EXPECT_EQ(DecodeRules(EncodeRules(rules)), rules);
  EXPECT_THAT(DecodeRules(""), IsEmpty());
}

TEST(Notices, TheJobsOwnRulesComeFirstThenItsOwnersThenItsProjects) {
  NotifyConfig config = Targets();
  config.all = {{"ops", {NoticeEvent::kFailed}}};
  const JobRecord job = TheJob();
  const auto told = [&](const std::optional<std::string>& own) {
    return TargetsOf(config, own, job, NoticeEvent::kFailed);
  };
  EXPECT_THAT(told(std::nullopt), ElementsAre("ops"));
  config.projects["vision"] = {{"chat", {NoticeEvent::kFailed}}};
  EXPECT_THAT(told(std::nullopt), ElementsAre("chat"));
  config.users["ada"] = {{"mail", {NoticeEvent::kFailed}}, {"ops", {kFinished}}};
  EXPECT_THAT(told(std::nullopt), ElementsAre("mail"));
  EXPECT_THAT(told("ops:failed chat:finished gone:failed"), ElementsAre("ops"));
  EXPECT_THAT(told(""), IsEmpty());
}

TEST(Notices, SayWhatBecameOfWhichJob) {
  NotifyConfig config = Targets();
  config.dashboard = "https://gpu.example:7651";
  const auto event = Changed(JobState::kRunning, JobState::kFailed, ReasonCode::kRankFailed);
  const Notification notice = MakeNotice(config, "9f2c01ab", TheJob(), event, 7, "ops");
  EXPECT_EQ(notice.id, "9f2c01ab-12-7-ops");
  EXPECT_EQ(notice.created, event.time);
  const auto body = nlohmann::json::parse(notice.body);
  EXPECT_EQ(body["id"], notice.id);
  EXPECT_EQ(body["type"], "job.failed");
  EXPECT_EQ(body["timestamp"], "2027-01-15T08:00:00.123Z");
  EXPECT_EQ(body["job"]["id"], 12);
  EXPECT_EQ(body["job"]["state"], "JOB_STATE_FAILED");
  EXPECT_EQ(body["job"]["reason"], "REASON_CODE_RANK_FAILED");
  EXPECT_EQ(body["job"]["ended"], body["timestamp"]);
  EXPECT_EQ(body["job"]["url"], "https://gpu.example:7651/jobs/12");
}

TEST(Notices, WithoutADashboardThereIsNoLinkAndBeforeTheEndNoEnd) {
  const auto event = Changed(JobState::kPreempting, JobState::kQueued, ReasonCode::kPreempted);
  const auto body = nlohmann::json::parse(MakeNotice(Targets(), "c", TheJob(), event, 7, "ops").body);
  EXPECT_FALSE(body["job"].contains("url"));
  EXPECT_TRUE(body["job"]["ended"].is_null());
}

}  // namespace
}  // namespace imgd
