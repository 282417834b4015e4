#include <gmock/gmock.h>

#include <sstream>

#include "cli/command_line.h"
#include "cli/session_terminal.h"

namespace imgd::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(EscapeFilter, LeavesAtATildeAndADotAtTheStartOfALineOnly) {
  bool leave = false;
  EscapeFilter filter;
  EXPECT_EQ(filter.Take("ls ~.\r", leave), "ls ~.\r");
  EXPECT_FALSE(leave);
  EXPECT_EQ(filter.Take("~", leave), "");  // held back until what follows is known
  EXPECT_EQ(filter.Take("x", leave), "~x");
  EXPECT_EQ(filter.Take("\r~~.\r", leave), "\r~.\r");
  EXPECT_FALSE(leave);
  EXPECT_EQ(filter.Take("~.rest", leave), "");
  EXPECT_TRUE(leave);
  leave = false;
  EXPECT_EQ(EscapeFilter().Take("~.", leave), "");
  EXPECT_TRUE(leave);
}

/// `imgcli shell NODE [--rank N] [-- WORDS]` and a command that takes no rest.
struct ShellGrammar {
  CommandLine line{"imgcli", "", "imgcli 1"};
  std::string node;
  uint64_t rank = 0;
  std::vector<std::string> rest;

  ShellGrammar() {
    Command shell = line.root().AddSubcommand("shell", "");
    shell.AddOption("NODE", node, "").Required();
    shell.AddNumber("--rank", "", 0, 9, [this](uint64_t value) { rank = value; });
    shell.TakesRest(rest);
    shell.Runs([] { return 0; });
    Command logs = line.root().AddSubcommand("logs", "");
    logs.AddOption("JOB", node, "").Required();
    logs.Runs([] { return 0; });
  }
  CommandLine::Parsed Parse(std::vector<const char*> words) {
    words.insert(words.begin(), "imgcli");
    std::ostringstream out;
    return line.Parse(static_cast<int>(words.size()), words.data(), out, out);
  }
};

TEST(CommandLine, WhatFollowsTheDashesIsTakenAsItIs) {
  ShellGrammar line;
  const auto parsed =
      line.Parse({"shell", "a", "--rank", "3", "--", "ls", "-l", "--rank", "{}", "[1,2]", "", "--", "x"});
  EXPECT_FALSE(parsed.error);
  EXPECT_TRUE(parsed.action);
  EXPECT_EQ(line.node, "a");
  EXPECT_EQ(line.rank, 3U);
  EXPECT_THAT(line.rest, ElementsAre("ls", "-l", "--rank", "{}", "[1,2]", "", "--", "x"));
}

TEST(CommandLine, WithoutDashesThereIsNoRest) {
  ShellGrammar line;
  EXPECT_FALSE(line.Parse({"shell", "a"}).error);
  EXPECT_THAT(line.rest, IsEmpty());
  ShellGrammar wrong;
  const auto parsed = wrong.Parse({"shell", "a", "ls"});
  ASSERT_TRUE(parsed.error);
  EXPECT_THAT(parsed.error->message, HasSubstr("'ls' is one argument too many"));
}

TEST(CommandLine, NoOtherCommandTakesARest) {
  ShellGrammar line;
  EXPECT_TRUE(line.Parse({"logs", "shell", "--", "x"}).error);
  ShellGrammar missing;
  EXPECT_TRUE(missing.Parse({"shell", "--", "x"}).error);
}

}  // namespace
}  // namespace imgd::cli
