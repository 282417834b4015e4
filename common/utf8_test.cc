#include "common/utf8.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

TEST(Utf8, KnowsWhatIsNone) {
  for (const char* good : {"", "plain", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(FindInvalidUtf8(good), std::nullopt) << good;
  }
  EXPECT_EQ(FindInvalidUtf8("caf\xE9"), 3U);
  EXPECT_EQ(FindInvalidUtf8("a\xFF"), 1U);
  EXPECT_EQ(FindInvalidUtf8("\x80"), 0U) << "a byte that goes on from nothing";
  EXPECT_EQ(FindInvalidUtf8("\xC0\xAF"), 0U) << "an overlong form";
  EXPECT_EQ(FindInvalidUtf8("\xE0\x80\xAF"), 0U) << "an overlong form";
  EXPECT_EQ(FindInvalidUtf8("\xED\xA0\x80"), 0U) << "a surrogate";
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0U) << "beyond U+10FFFF";
  EXPECT_EQ(FindInvalidUtf8("\xE2\x82"), 0U) << "cut short";
}

TEST(Utf8, PutsAMarkInThePlaceOfEachByteThatIsNone) {
  EXPECT_EQ(ToUtf8("caf\xE9.yaml"), "caf\xEF\xBF\xBD.yaml");
  EXPECT_EQ(ToUtf8("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ToUtf8("caf\xC3\xA9"), "caf\xC3\xA9");
}

TEST(Utf8, WhatSomebodySaysIsOneLineThatMovesNoCursor) {
  EXPECT_EQ(OneLine("a b caf\xC3\xA9 \xE2\x80\xA6"), "a b caf\xC3\xA9 \xE2\x80\xA6");
  EXPECT_EQ(OneLine("x\nlevel=info\r\t\x1B[2J\x7F"), "x level=info   [2J ");
  EXPECT_EQ(OneLine("a\xC2\x9B"
                    "31mb"),
            "a 31mb")
      << "C1: CSI in one character";
  EXPECT_EQ(OneLine("a\x9B"
                    "b"),
            "a\xEF\xBF\xBD"
            "b")
      << "CSI of terminals that take Latin 1";
  EXPECT_EQ(OneLine("a\xE2\x80\xA8"
                    "b\xE2\x80\xAE"
                    "c\xE2\x81\xA6"
                    "d"),
            "a b c d");
  EXPECT_EQ(FindControl("ab\xC2\x85"), 2U);
  EXPECT_EQ(FindControl("caf\xC3\xA9"), std::nullopt);
}

}  // namespace
}  // namespace imgd
