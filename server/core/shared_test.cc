#include "server/core/shared.h"

#include <gtest/gtest.h>

#include <string>

#include "server/core/first_of.h"

namespace imgd {
namespace {

TEST(Shared, ACopyHasThePlaceOfItsOrigin) {
  const Shared<std::string> one(std::string("H100"));
  const Shared<std::string> copy = one;
  const Shared<std::string> equal(std::string("H100"));
  EXPECT_EQ(copy.place(), one.place());
  EXPECT_NE(equal.place(), one.place());
  EXPECT_EQ(equal, one);
  EXPECT_LT(Shared<std::string>(std::string("A100")), one);
  EXPECT_EQ(Shared<std::string>().place(), Shared<std::string>().place());
}

TEST(OneOfEach, EqualValuesGetOnePlaceAndThoseThatNobodyHasGo) {
  OneOfEach<std::string> each;
  const auto kept = each.Of(std::string("kept"));
  for (int i = 0; i < 1000; ++i) (void)each.Of(std::to_string(i));
  EXPECT_EQ(each.Of(std::string("kept")).place(), kept.place());
  EXPECT_NE(each.Of(std::string("other")).place(), kept.place());
  EXPECT_LE(each.size(), 64U);
}

TEST(FirstOf, EachKeyHasTheNumberThatItCameWithFirst) {
  struct AllAlike {
    size_t operator()(int) const { return 7; }
  };
  FirstOf<int, AllAlike> firsts(3);
  EXPECT_EQ(firsts.With(0, 5), 5U);
  EXPECT_EQ(firsts.With(9, 6), 6U);
  EXPECT_EQ(firsts.With(0, 7), 5U);
  EXPECT_EQ(firsts.With(9, 8), 6U);
}

}  // namespace
}  // namespace imgd
