#include "common/utf8.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

TEST(Utf8, InvalidBytesAreReplaced) {
  EXPECT_EQ(ToUtf8("plain"), "plain");
  EXPECT_EQ(ToUtf8("\xE2\x82\xAC \xF0\x9F\x98\x80"), "\xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(ToUtf8("a\xC3"), "a\xEF\xBF\xBD");
  EXPECT_EQ(ToUtf8("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong";
  EXPECT_EQ(ToUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "surrogate";
}

}  // namespace
}  // namespace imgd
