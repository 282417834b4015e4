#include "trainer/report/record_file.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>

namespace imgd::report {
namespace {

namespace fs = std::filesystem;

/// While it lives a file can't grow past so many bytes: a full disk, to who writes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class Records : public testing::Test {
 protected:
  Records() {
    std::string pattern = (fs::temp_directory_path() / "records-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Records() override { fs::remove_all(folder_); }
  std::string Content() const { return *ReadFile(path()); }
  fs::path path() const { return folder_ / "new" / "file"; }

  fs::path folder_;
};

TEST_F(Records, NoRecordIsThereInPartAndNoneIsLostWhileTheDiskIsFull) {
  RecordQueue queue([this] { return RecordFile::Create(path(), "head."); });
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_TRUE(queue.Add("one.").has_value());
  EXPECT_EQ(Content(), "head.one.");
  {
    const FullDisk full(11);
    EXPECT_FALSE(queue.Add("two.").has_value());
    EXPECT_EQ(Content(), "head.one.");
    EXPECT_FALSE(queue.Add("three.").has_value());
    EXPECT_FALSE(queue.Flush().has_value());
  }
  EXPECT_TRUE(queue.Flush().has_value());
  EXPECT_EQ(Content(), "head.one.two.three.");
}

TEST_F(Records, AFileWithoutRoomForItsHeadIsNoFile) {
  const FullDisk full(3);
  EXPECT_FALSE(RecordFile::Create(path(), "head.").has_value());
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(Records, WhatWaitsTooLongIsGivenUpOldestFirst) {
  bool open = false;
  RecordQueue queue([&]() -> Result<RecordFile> {
    if (!open) return Fail(ErrorCode::kPermissionDenied, "not yet");
    return RecordFile::Create(path(), "");
  });
  const std::string half(RecordQueue::kMostBytes / 2, '1');
  for (char c = '0'; c <= '3'; ++c) {
    EXPECT_EQ(queue.Add(std::string(half.size(), c)).error().message, "not yet");
  }
  open = true;
  EXPECT_TRUE(queue.Flush().has_value());
  EXPECT_EQ(Content().size(), RecordQueue::kMostBytes);
  EXPECT_EQ(Content().front(), '2');
  EXPECT_EQ(Content().back(), '3');
}

}  // namespace
}  // namespace imgd::report
