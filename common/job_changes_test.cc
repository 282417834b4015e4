#include "common/job_changes.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFile = "name: a\ndata:\n  train: /x\n  flip: maybe\n";

std::vector<std::string> ErrorsOf(std::string_view text, const std::vector<std::string>& sets) {
  std::vector<std::string> out;
  const auto spec = ParseChangedJobFile(text, "job.yaml", sets);
  if (spec) return out;
  for (const auto& error : spec.error()) out.push_back(error.ToString());
  return out;
}

TEST(JobChanges, AreMade) {
  const auto spec =
      ParseChangedJobFile("name: a\ndata: {train: /x}\n", "job.yaml", {"train.epochs=3", "name=b"});
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->train.epochs, 3);
  EXPECT_EQ(spec->name, "b");
}

TEST(JobChanges, AnErrorIsToldAtTheSetThatMadeItAndOneOfTheFileAtItsPlace) {
  EXPECT_THAT(ErrorsOf(kFile, {"train.epoch=3"}),
              testing::UnorderedElementsAre(
                  HasSubstr("job.yaml:4:9: data.flip: found 'maybe'"),
                  "--set train.epoch=3: train.epoch: unknown key (did you mean 'epochs'?)"));
  EXPECT_THAT(ErrorsOf(kFile, {}), ElementsAre(HasSubstr("job.yaml:4:9: data.flip")));
}

TEST(JobChanges, OneThatCannotBeMadeIsNamedOnce) {
  EXPECT_THAT(ErrorsOf(kFile, {"epochs"}),
              ElementsAre("--set epochs: PATH=VALUE is expected, such as train.epochs=10"));
  EXPECT_THAT(ErrorsOf(kFile, {"name.x=1"}), ElementsAre("--set name.x=1: goes through 'a', not a mapping"));
  EXPECT_THAT(ErrorsOf("name: [a", {"seed=1"}), ElementsAre(HasSubstr("job.yaml:1:1: not valid YAML")));
}

TEST(JobChanges, AnEmptyValueIsTextAndNotTheDefault) {
  constexpr const char* kGood = "name: a\ndata: {train: /x, val: /y}\n";
  EXPECT_THAT(ErrorsOf(kGood, {"train.epochs="}),
              ElementsAre(HasSubstr("--set train.epochs=: train.epochs: found '' where a whole number")));
  EXPECT_THAT(ErrorsOf(kGood, {"data.flip= "}), ElementsAre(HasSubstr("found '' where true or false")));
  EXPECT_THAT(ErrorsOf(kGood, {"grace="}), ElementsAre(HasSubstr("found '' where a duration")));
  EXPECT_THAT(ErrorsOf(kGood, {"train="}), ElementsAre(HasSubstr("found '' where a mapping")));
  EXPECT_EQ(ParseChangedJobFile(kGood, "job.yaml", {"data.val="})->data.val, "");
  EXPECT_EQ(ParseChangedJobFile(kGood, "job.yaml", {"train.epochs=null"})->train.epochs, 90);
}

TEST(JobChanges, TheRestOfAFileOfTwoDocumentsIsNotDropped) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\n---\nseed: 2\n", {"seed=1"}),
              ElementsAre(HasSubstr("job.yaml:3:1: a second document begins here")));
}

}  // namespace
}  // namespace imgd
