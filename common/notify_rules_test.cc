#include "common/notify_rules.h"

#include <gmock/gmock.h>

#include "common/job_file.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using enum NoticeEvent;

constexpr const char* kNotifyHead = "name: rn50\ndata: {train: /data}\n";

std::vector<NotifyRule> NotifyRulesIn(const std::string& text) {
  const auto spec = ParseJobFile(kNotifyHead + text, "job.yaml");
  EXPECT_TRUE(spec.has_value()) << spec.error().front().ToString();
  return spec && spec->notify ? *spec->notify : std::vector<NotifyRule>{};
}

std::vector<Error> NotifyErrorsOf(const std::string& text) {
  const auto spec = ParseJobFile(kNotifyHead + text, "job.yaml");
  return spec ? std::vector<Error>{} : spec.error();
}

TEST(NotifyRules, ATargetAloneIsToldEverything) {
  EXPECT_THAT(NotifyRulesIn("notify: ops\n"),
              ElementsAre(NotifyRule{"ops", {kFinished, kFailed, kPreempted, kStalled}}));
}

TEST(NotifyRules, EachTargetHasEventsOfItsOwn) {
  EXPECT_THAT(NotifyRulesIn("notify: [mail, {to: ops, when: [stalled, failed, failed]}]\n"),
              ElementsAre(NotifyRule{"mail", {kFinished, kFailed, kPreempted, kStalled}},
                          NotifyRule{"ops", {kFailed, kStalled}}));
}

TEST(NotifyRules, AnEmptyListIsNobodyAndNoKeyIsTheOperatorsChoice) {
  EXPECT_FALSE(ParseJobFile(kNotifyHead, "job.yaml")->notify.has_value());
  const auto none = ParseJobFile(std::string(kNotifyHead) + "notify: []\n", "job.yaml");
  ASSERT_TRUE(none && none->notify);
  EXPECT_THAT(*none->notify, IsEmpty());
}

TEST(NotifyRules, ErrorsHaveTheirPlace) {
  const auto errors = NotifyErrorsOf("notify:\n  - {to: ops, when: [faild]}\n  - {when: [failed]}\n");
  ASSERT_THAT(errors, SizeIs(2));
  EXPECT_EQ(errors[0].line, 4);
  EXPECT_THAT(errors[0].message, HasSubstr("notify[0].when: found 'faild'; allowed: finished, failed"));
  EXPECT_THAT(errors[0].hint, HasSubstr("'failed'"));
  EXPECT_EQ(errors[1].line, 5);
  EXPECT_THAT(errors[1].message, HasSubstr("notify[1].to: missing"));
}

TEST(NotifyRules, RefusesWhatIsNoTarget) {
  EXPECT_THAT(NotifyErrorsOf("notify: 'two words'\n"), SizeIs(1));
  EXPECT_THAT(NotifyErrorsOf("notify: [ops, ops]\n"), SizeIs(1));
  EXPECT_THAT(NotifyErrorsOf("notify: {to: ops, when: []}\n"), SizeIs(1));
  EXPECT_THAT(NotifyErrorsOf("notify: {to: ops, whn: [failed]}\n"), SizeIs(1));
  EXPECT_THAT(NotifyErrorsOf("notify: {to: ops, when: failed}\n"), SizeIs(1));
}

TEST(NotifyRules, AreOfASweepAsAWhole) {
  EXPECT_THAT(NotifyErrorsOf("sweep: {grid: {notify: [ops, mail]}}\n"), SizeIs(1));
}

TEST(NotifyRules, OfVeryManyNoneIsRead) {
  std::string many = "notify: [t0";
  for (int i = 1; i < 30'000; ++i) many += fmt::format(", t{}", i);
  const auto errors = NotifyErrorsOf(many + "]\n");
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors.front().message, "notify: found 30000 targets; at most 20 are allowed");
}

}  // namespace
}  // namespace imgd
