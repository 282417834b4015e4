#include "common/pulse.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace imgd {
namespace {

using testing::HasSubstr;

struct Pulse : testing::Test {
  void TearDown() override { RemovePulse(path); }
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / fmt::format("imgd_pulse_test_{}", ::getpid());
};

TEST_F(Pulse, IsReadAsItWasWritten) {
  auto file = PulseFile::Create(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(*ReadPulse(path), PulseState{});
  const PulseState state{.beats = 1,
                         .moves = 2,
                         .step = 3,
                         .collectives = 4,
                         .limit_ms = 15'000,
                         .silence_limit_ms = 16'000,
                         .what = "forward pass",
                         .unanswered = "10.0.0.7"};
  file->Write(state);
  EXPECT_EQ(*ReadPulse(path), state);
  file->Write({.what = std::string(100, 'x')});
  EXPECT_EQ(*ReadPulse(path), PulseState{.what = std::string(kMaxPulseText, 'x')});
}

TEST_F(Pulse, IsInMemoryAndTheRunsFolderLeadsToIt) {
  if (::access(kPulseFolder, W_OK) != 0) GTEST_SKIP() << "no " << kPulseFolder;
  auto file = PulseFile::Create(path);
  ASSERT_TRUE(file.has_value());
  const auto kept = std::filesystem::read_symlink(path);
  EXPECT_EQ(kept.parent_path(), kPulseFolder);
  file->Write({.beats = 7});
  EXPECT_EQ(ReadPulse(path)->beats, 7u);
  const auto again = PulseFile::Create(path);
  EXPECT_FALSE(std::filesystem::exists(kept)) << "a rank that is started again leaves none behind";
  EXPECT_EQ(ReadPulse(path)->beats, 0u);
  const auto other = std::filesystem::read_symlink(path);
  RemovePulse(path);
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_FALSE(std::filesystem::is_symlink(path));
}

TEST_F(Pulse, WithoutSuchMemoryItIsAFile) {
  auto file = PulseFile::Create(path, "/no/such/folder");
  ASSERT_TRUE(file.has_value());
  file->Write({.beats = 8});
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  EXPECT_EQ(ReadPulse(path)->beats, 8u);
}

TEST_F(Pulse, WhatALinkLeadsToElsewhereIsNotRemoved) {
  const auto other = std::filesystem::path(testing::TempDir()) / fmt::format("imgd-pulse.{}", ::getpid());
  std::ofstream(other) << "mine";
  std::filesystem::create_symlink(other, path);
  RemovePulse(path);
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  EXPECT_TRUE(std::filesystem::exists(other));
  std::filesystem::remove(other);
}

TEST_F(Pulse, IsNeverReadHalf) {
  auto file = PulseFile::Create(path);
  ASSERT_TRUE(file.has_value());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) file->Write({.beats = i, .moves = i, .step = i, .collectives = i});
  });
  int whole = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto state = ReadPulse(path);
    if (!state) continue;
    ++whole;
    EXPECT_EQ(*state, (PulseState{.beats = state->beats,
                                  .moves = state->beats,
                                  .step = state->beats,
                                  .collectives = state->beats}));
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole + (ReadPulse(path) ? 1 : 0), 0);
}

TEST_F(Pulse, ErrorsSayWhatIsThere) {
  EXPECT_EQ(ReadPulse(path).error().code, ErrorCode::kNotFound);
  std::ofstream(path) << "short";
  EXPECT_EQ(ReadPulse(path).error().code, ErrorCode::kDataLoss);
  std::ofstream(path) << std::string(192, 'x');
  EXPECT_THAT(ReadPulse(path).error().message, HasSubstr("is no pulse of a rank"));
  EXPECT_EQ(PulseFile::Create("/no/such/folder/pulse.0").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace imgd
