#include "trainer/report/events_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace imgd::report {
namespace {

namespace fs = std::filesystem;

class Events : public testing::Test {
 protected:
  Events() {
    std::string pattern = (fs::temp_directory_path() / "events-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "events.0";
  }
  ~Events() override { fs::remove_all(folder_); }

  fs::path folder_;
  fs::path path_;
};

TEST_F(Events, FramesFollowOneAnother) {
  auto file = EventsFile::Open(path_);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->last_payload().empty());
  ASSERT_TRUE(file->Append("one").has_value());
  ASSERT_TRUE(file->Append(std::string(300, 'x')).has_value());
  EXPECT_EQ(*ReadFile(path_),
            std::string("\x03\0\0\0one", 7) + std::string("\x2c\x01\0\0", 4) + std::string(300, 'x'));
}

TEST_F(Events, AReopenedFileKnowsItsLastFrame) {
  ASSERT_TRUE(EventsFile::Open(path_)->Append("one").has_value());
  ASSERT_TRUE(EventsFile::Open(path_)->Append("two").has_value());
  EXPECT_EQ(EventsFile::Open(path_)->last_payload(), "two");
}

TEST_F(Events, WhatACrashLeftOfAFrameIsCutOff) {
  ASSERT_TRUE(EventsFile::Open(path_)->Append("one").has_value());
  for (const auto& torn : {std::string("\x09\0", 2), std::string("\x09\0\0\0half", 8)}) {
    std::ofstream(path_, std::ios::app) << torn;
    auto file = EventsFile::Open(path_);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(file->last_payload(), "one");
    EXPECT_EQ(fs::file_size(path_), 7U);
  }
}

TEST_F(Events, ALengthThatCannotBeIsAnErrorAndNothingIsCutOff) {
  std::ofstream(path_) << "this is some other file";
  EXPECT_EQ(EventsFile::Open(path_).error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(fs::file_size(path_), 23U);
}

}  // namespace
}  // namespace imgd::report
