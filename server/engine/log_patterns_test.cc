#include "server/engine/log_patterns.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> LinesOf(const std::string& name) {
  std::ifstream file(std::string(IMGD_LINES) + "/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !line.starts_with('#')) lines.push_back(line);
  }
  return lines;
}

TEST(LogPatterns, EachRecordedFailureIsFoundByItsPattern) {
  const LogMatcher matcher(BuiltInPatterns());
  std::set<std::string> found;
  for (const auto& row : LinesOf("failure_lines.txt")) {
    const auto first = row.find('\t');
    const auto second = row.find('\t', first + 1);
    ASSERT_NE(second, std::string::npos) << row;
    const std::string line = row.substr(second + 1);
    const auto match = matcher.Find({"an epoch is over", line, "exit"});
    ASSERT_TRUE(match) << line;
    EXPECT_EQ(match->pattern, row.substr(0, first)) << line;
    EXPECT_EQ(match->line.substr(0, 100), line.substr(0, 100));
    found.insert(match->pattern);
  }
  for (const auto& pattern : BuiltInPatterns()) EXPECT_TRUE(found.contains(pattern.name)) << pattern.name;
}

TEST(LogPatterns, NoHealthyLineIsTakenForAFailure) {
  const LogMatcher matcher(BuiltInPatterns());
  const auto lines = LinesOf("healthy_lines.txt");
  std::set<std::string> different;  // by more than their numbers
  for (const auto& line : lines) {
    std::string words = line;
    std::erase_if(words, [](unsigned char c) { return std::isxdigit(c) != 0; });
    different.insert(std::move(words));
    const auto match = matcher.Find({line});
    EXPECT_FALSE(match) << match->pattern << ": " << line;
  }
  EXPECT_GE(different.size(), 1000u);
}

TEST(LogPatterns, TheFirstPatternOfTheListThatMatchesAnyLineIsBelieved) {
  const LogMatcher matcher(BuiltInPatterns());
  const auto match = matcher.Find({"ncclSystemError: System call failed", "CUDA out of memory",
                                   "CUDA error: uncorrectable ECC error encountered (1)",
                                   "CUDA error: uncorrectable ECC error encountered (2)"});
  ASSERT_TRUE(match);
  EXPECT_EQ(match->pattern, "ecc");
  EXPECT_THAT(match->line, HasSubstr("(1)"));
  EXPECT_EQ(match->action, PatternAction::kExcludeNode);
  EXPECT_EQ(match->label, "the memory of a GPU is broken");
  EXPECT_LT(match->place, matcher.Find({"ncclSystemError: System call failed"})->place);
}

TEST(LogPatterns, TheOperatorsComeFirstAndMayReplaceOrSwitchOffTheBuiltInOnes) {
  const auto patterns =
      AllPatterns({{.name = "mine", .match = "my framework gave up", .action = PatternAction::kNoRetry},
                   {.name = "cuda-oom", .action = PatternAction::kNoRetry},
                   {.name = "disk-full", .ignored = true}},
                  true);
  EXPECT_EQ(patterns.size(), BuiltInPatterns().size());
  const LogMatcher matcher(patterns);
  EXPECT_EQ(matcher.Find({"CUDA out of memory", "my framework gave up"})->pattern, "mine");
  EXPECT_EQ(matcher.Find({"CUDA out of memory"})->action, PatternAction::kNoRetry);
  EXPECT_THAT(matcher.Find({"CUDA out of memory"})->label, HasSubstr("the GPU's memory is full"));
  EXPECT_FALSE(matcher.Find({"OSError: [Errno 28] No space left on device"}));
  EXPECT_EQ(AllPatterns({{.name = "mine", .match = "x"}}, false).size(), 1u);
  EXPECT_FALSE(LogMatcher({}).Find({"CUDA out of memory"}));
}

TEST(LogPatterns, OneWithABuiltInNameStandsInThatOnesPlace) {
  using enum PatternAction;
  const LogMatcher matcher(AllPatterns({{.name = "nccl", .action = kNoRetry},
                                        {.name = "nccl-timeout", .match = "ring is stuck", .action = kRetry},
                                        {.name = "gpu-lost", .match = "no answer", .action = kExcludeNode}},
                                       true));
  const std::string nccl = "ncclSystemError: System call failed";
  EXPECT_EQ(matcher.Find({nccl})->action, kNoRetry);
  EXPECT_EQ(matcher.Find({nccl, "uncorrectable ECC error encountered"})->pattern, "ecc");
  EXPECT_EQ(matcher.Find({nccl, "ring is stuck"})->pattern, "nccl-timeout");
  EXPECT_TRUE(matcher.Find({"ring is stuck"})->collective);
  EXPECT_EQ(matcher.Find({"no answer"})->pattern, "gpu-lost");
  EXPECT_FALSE(matcher.Find({"no answer"}, false));
}

TEST(LogPatterns, AMessageOfSeveralLinesIsLookedThrough) {
  const LogMatcher matcher(BuiltInPatterns());
  EXPECT_EQ(matcher.FindIn("training failed\nCUDA out of memory\n")->line, "CUDA out of memory");
  EXPECT_FALSE(matcher.FindIn(""));
}

TEST(LogPatterns, ALongLineIsCutAndAHostileOneCostsNothingMuch) {
  const LogMatcher matcher({{.name = "hostile", .match = "(a*)*(a|aa)+$b"}, {.name = "oom", .match = "OOM"}});
  EXPECT_FALSE(matcher.Find({std::string(100'000, 'a')}));
  const auto match = matcher.Find({"OOM " + std::string(5000, 'x')});
  ASSERT_TRUE(match);
  EXPECT_EQ(match->line.size(), 303u);
  EXPECT_FALSE(matcher.Find({"\xff\xfe\x80"}));
}

TEST(LogPatterns, WhatTellsOfAGpuIsNotLookedForWhereARankHasNone) {
  const LogMatcher matcher(AllPatterns({}, true));
  const std::vector<std::string> lines = {"CUDA error: uncorrectable ECC error encountered",
                                          "std::bad_alloc"};
  EXPECT_EQ(matcher.Find(lines)->pattern, "ecc");
  EXPECT_EQ(matcher.Find(lines, false)->pattern, "host-oom");
}

TEST(LogPatterns, ABadExpressionIsNamed) {
  EXPECT_THAT(WhyNoPattern("CUDA out of memory"), IsEmpty());
  EXPECT_THAT(WhyNoPattern("(unclosed"), HasSubstr("missing )"));
  EXPECT_THAT(WhyNoPattern("(a)\\1"), Not(IsEmpty())) << "backreferences are not linear in time";
  EXPECT_THAT(WhyNoPattern("x*"), HasSubstr("matches every line"));
  for (const auto& pattern : BuiltInPatterns()) EXPECT_EQ(WhyNoPattern(pattern.match), "") << pattern.name;
}

}  // namespace
}  // namespace imgd
