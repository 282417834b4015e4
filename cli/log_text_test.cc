// What a program wrote, on somebody's terminal.
#include "cli/log_text.h"

#include <gtest/gtest.h>

namespace imgd::cli {
namespace {

TEST(LogText, KeepsColoursAndEndsThemWithTheLine) {
  EXPECT_EQ(LogText("\x1b[1;31mbad\x1b[0m worse", true), "\x1b[1;31mbad\x1b[0m worse\x1b[0m");
  EXPECT_EQ(LogText("\x1b[38:2::1:2:3mx", true), "\x1b[38:2::1:2:3mx\x1b[0m");
  EXPECT_EQ(LogText("\x1b[1;31mbad\x1b[0m worse", false), "bad worse");
  EXPECT_EQ(LogText("loss 3.2\tcaf\xC3\xA9", true), "loss 3.2\tcaf\xC3\xA9");
}

TEST(LogText, NothingElseReachesTheTerminal) {
  struct Row {
    std::string written;
    std::string shown;
  };
  for (const auto& [written, shown] : std::vector<Row>{
           {"a\x1b[2J\x1b[10;5Hb", "ab"},       // clears the screen, moves the cursor
           {"a\x1b[?1049h\x1b[>4;2mb", "ab"},   // another screen; m, but no colour
           {"\x1b]0;a title\x07text", "text"},  // OSC
           {"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
           {"\x1bPq#0\x1b\\after", "after"},  // DCS: a picture
           {"\x1b]0;never ended", ""},
           {"a\x1b(Bb\x1b"
            "7c\x1b",
            "abc"},
           {"a\xC2\x9B"
            "2Jb\xC2\x9D"
            "0;t\xC2\x9C"
            "c",
            "abc"},  // C1 in UTF-8
           {"10 %\r20 %\r", "10 % 20 %"},
           {"a\bb\x07\x7F", "a b  "},
           {"\x1b[12", ""},
       }) {
    EXPECT_EQ(LogText(written, true), shown) << shown;
  }
}

}  // namespace
}  // namespace imgd::cli
