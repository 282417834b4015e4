#include "trainer/loop/pickle.h"

#include <gmock/gmock.h>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

// Written by Python: pickle.dumps(value, protocol), as pickletools.dis() shows them.

TEST(Pickle, ReadsPlainValues) {
  // {"a": [1, -2, 300, 2**40], "b": (True, None, 0.5)} by protocol 2
  const auto pickle = ReadPickle(
      "\x80\x02}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01\x8a\x06\0\0\0\0\0\x01"
      "e"
      "X\x01\0\0\0bq\x03\x88NG?\xe0\0\0\0\0\0\0\x87q\x04u."s);
  ASSERT_TRUE(pickle.has_value()) << pickle.error().message;
  const auto& dict = *pickle->root.Dict();
  ASSERT_EQ(dict.size(), 2U);
  EXPECT_EQ(*dict[0].first.Text(), "a");
  const auto& list = *dict[0].second.List();
  EXPECT_EQ(*list[0].As<int64_t>(), 1);
  EXPECT_EQ(*list[1].As<int64_t>(), -2);
  EXPECT_EQ(*list[2].As<int64_t>(), 300);
  EXPECT_EQ(*list[3].As<int64_t>(), int64_t{1} << 40);
  const auto& tuple = *dict[1].second.List();
  EXPECT_TRUE(*tuple[0].As<bool>());
  EXPECT_NE(tuple[1].As<std::monostate>(), nullptr);
  EXPECT_EQ(*tuple[2].As<double>(), 0.5);
}

TEST(Pickle, KeepsCallsAndRunsNone) {
  // A class whose __reduce__ returns (os.system, ("true",)), by protocol 2
  const auto pickle = ReadPickle(
      "\x80\x02"
      "cposix\nsystem\nq\0X\x04\0\0\0trueq\x01\x85q\x02Rq\x03."s);
  ASSERT_TRUE(pickle.has_value());
  const auto* call = pickle->root.As<PickleCall>();
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->function, "posix.system");
  EXPECT_EQ(*call->arguments->at(0).Text(), "true");
}

TEST(Pickle, AnOrderedDictIsADictAndItsAttributesArePassedOver) {
  // OrderedDict(a=1) with an attribute, as a module's state_dict() has it
  const auto pickle = ReadPickle(
      "\x80\x02"
      "ccollections\nOrderedDict\nq\0)Rq\x01X\x01\0\0\0aK\x01s}q\x02X\x09\0\0\0_metadataK\x02sb."s);
  ASSERT_TRUE(pickle.has_value()) << pickle.error().message;
  ASSERT_NE(pickle->root.Dict(), nullptr);
  EXPECT_EQ(*pickle->root.Dict()->at(0).first.Text(), "a");
}

TEST(Pickle, AListMayHoldItself) {
  const auto pickle = ReadPickle("\x80\x02]q\0h\0a."s);
  ASSERT_TRUE(pickle.has_value());
  EXPECT_EQ(pickle->root.List()->at(0).List(), pickle->root.List());
}

TEST(Pickle, NestingIsNoDangerHoweverDeep) {
  EXPECT_TRUE(ReadPickle("\x80\x02)" + std::string(1'000'000, '\x85') + ".").has_value());
}

TEST(Pickle, WhatIsMalformedIsAnErrorWithItsPlace) {
  for (const auto& text :
       {""s, "\x80\x02"s, "."s, "K\x01"s, "u."s, "(u."s, "}K\x01s."s, "h\x05."s, "X\xff\xff\xff\xff."s,
        "K\x01\x85\x86."s, "cposix\nsystem"s, "Kxb."s, "\xff."s, "\x8a\x09."s, "(."s}) {
    const auto pickle = ReadPickle(text);
    ASSERT_FALSE(pickle.has_value()) << text;
    EXPECT_THAT(pickle.error().message, HasSubstr("not a pickle that can be read")) << text;
  }
}

}  // namespace
}  // namespace imgd::trainer
