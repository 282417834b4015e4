#include "common/log.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace imgd {
namespace {

TEST(Log, WhatSomebodyNamedMakesNoLineOfItsOwn) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(SetUpLog("log_test", "info"));
  spdlog::info("msg=\"{}\"", "x\n2026 error imgd faked\x1B[2J");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr(" info log_test msg=\"x 2026 error imgd faked [2J\"\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

}  // namespace
}  // namespace imgd
