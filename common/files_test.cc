#include "common/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace imgd {
namespace {

TEST(Files, WritesAndReadsBack) {
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_files_test_{}", ::getpid());
  ASSERT_TRUE(WriteFileAtomically(path, "one").has_value());
  ASSERT_TRUE(WriteFileAtomically(path, "two").has_value());
  EXPECT_EQ(*ReadFile(path), "two");
  std::filesystem::remove(path);
}

TEST(Files, ErrorsNameThePathAndTheCause) {
  const auto missing = ReadFile("/nonexistent/x");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, "cannot open /nonexistent/x: No such file or directory");
  EXPECT_FALSE(WriteFileAtomically("/nonexistent/x", "").has_value());
  EXPECT_EQ(WriteFileAtomically("/dev/full/x", "").error().code, ErrorCode::kNotFound);
}

TEST(Files, AFolderOrAFileWithoutEndIsBadInput) {
  const auto folder = ReadFile(testing::TempDir());
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.error().message, testing::HasSubstr("is a folder where a file is expected"));
  const auto endless = ReadFile("/dev/zero", 1 << 20);
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(endless.error().message, "/dev/zero has more than the 1048576 bytes that are allowed");
}

TEST(Files, AFullDiskIsResourceExhausted) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  EXPECT_EQ(WriteAll(full.get(), "x", "/dev/full").error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace imgd
