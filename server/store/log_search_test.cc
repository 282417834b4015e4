#include "server/store/log_search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "server/store/log_files.h"
#include "server/store/log_reader.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const LogStream kLog{{JobId(7), Generation(2)}, 3};
constexpr uint64_t kEnd = UINT64_MAX;

TEST(LogMatch, TheLevelOfALineIsWhatProgramsWrite) {
  const std::vector<std::pair<std::string, LogLevel>> lines = {
      {"[error] rank=3 failed", LogLevel::kError},
      {"2026-11-24 10:00:00 WARNING: slow disk", LogLevel::kWarning},
      {"[info] no error so far", LogLevel::kInfo},
      {"[debug] error counters are 0", LogLevel::kDebug},
      {"Traceback (most recent call last):", LogLevel::kError},
      {"terminate called: Aborted", LogLevel::kError},
      {"terror of the seas", LogLevel::kInfo},
      {"error_rate=0.2", LogLevel::kInfo},
      {"loss=2.3", LogLevel::kInfo},
      {"a warning, then an exception", LogLevel::kError},
      {"trace of steps", LogLevel::kDebug},
      {"", LogLevel::kInfo},
  };
  for (const auto& [text, level] : lines) EXPECT_EQ(LevelOf(text), level) << text;
}

TEST(LogMatch, FindsEveryPlaceWhateverTheLettersSize) {
  for (size_t before = 0; before < 140; ++before) {
    const std::string text = std::string(before, 'n') + "NaN loss" + std::string(before % 67, 'x');
    EXPECT_EQ(FindFolded(text, "nan loss"), before);
    EXPECT_EQ(FindFolded(text, "nan lost"), std::string::npos);
    EXPECT_EQ(FindFolded(text, "nan loss", before + 1), std::string::npos);
  }
  EXPECT_EQ(FindFolded("@[", "`{"), std::string::npos) << "only letters have two sizes";
  EXPECT_EQ(FindFolded("short", "longer than it"), std::string::npos);
}

/// A rank's log in two files; line n is `text(n)`.
struct LogSearch : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_log_search_{}_{}", info->name(), ::getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void Write(uint64_t first, uint64_t last, uint64_t segment,
             const std::function<std::string(uint64_t)>& text) {
    const auto path = LogFile(folder, kLog, segment);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path);
    uint64_t bytes = 0;
    for (uint64_t n = first; n <= last; ++n) {
      const std::string line = EncodeLine({n, static_cast<int64_t>(n), n % 2 == 0, text(n)});
      file << line;
      bytes += line.size();
    }
    stored = {.last_line = last, .segment = segment, .segment_bytes = bytes};
  }
  FoundLines Find(const LineFilter& filter, uint64_t lines, uint64_t before = kEnd, size_t bytes = 1 << 30) {
    auto found = FindBackwards(folder, kLog, stored, before, filter,
                               {.lines = lines, .text_bytes = bytes, .read_bytes = uint64_t{1} << 40});
    EXPECT_TRUE(found.has_value());
    return found.value_or(FoundLines{});
  }
  static std::vector<uint64_t> NumbersOf(const FoundLines& found) {
    std::vector<uint64_t> out;
    for (const auto& line : found.lines) out.push_back(line.number);
    return out;
  }

  std::filesystem::path folder;
  LogPosition stored;
};

std::string Plain(uint64_t n) { return "step " + std::to_string(n) + std::string(90, '.'); }

TEST_F(LogSearch, TheNewestLinesAndThoseBeforeThem) {
  Write(1, 30'000, 0, Plain);
  Write(30'001, 30'010, 1, Plain);
  const auto last = Find({}, 12);
  ASSERT_THAT(last.lines, SizeIs(12));
  EXPECT_EQ(last.lines.front().number, 29'999u);
  EXPECT_EQ(last.lines.back().number, 30'010u);
  EXPECT_EQ(last.previous, 29'999u);
  EXPECT_THAT(NumbersOf(Find({}, 3, last.previous)), ElementsAre(29'996, 29'997, 29'998));
  const auto first = Find({}, 10, 4);
  EXPECT_THAT(NumbersOf(first), ElementsAre(1, 2, 3));
  EXPECT_EQ(first.previous, 0u);
  EXPECT_THAT(Find({}, 10, 1).lines, IsEmpty());
  EXPECT_THAT(Find({}, 50'000).lines, SizeIs(30'010));
}

TEST_F(LogSearch, WhereBytesEndItTheNewestAreKept) {
  Write(1, 100, 0, [](uint64_t) { return std::string(1000, 'x'); });
  const auto found = Find({}, 50, kEnd, 5500);
  EXPECT_THAT(NumbersOf(found), ElementsAre(96, 97, 98, 99, 100));
  EXPECT_TRUE(found.too_many_bytes);
  EXPECT_EQ(found.previous, 96u);
  EXPECT_THAT(NumbersOf(Find({}, 50, kEnd, 10)), ElementsAre(100)) << "or nobody came past it";
}

TEST_F(LogSearch, AFewLinesInALongLog) {
  const auto rare = [](uint64_t n) {
    return n % 20'000 == 7 ? "[warning] Shard 12 is slow, took 31 s" : Plain(n);
  };
  Write(1, 50'000, 4, rare);
  Write(50'001, 90'000, 5, rare);
  EXPECT_THAT(NumbersOf(Find({"SHARD 12", LogLevel::kDebug}, 10)),
              ElementsAre(7, 20'007, 40'007, 60'007, 80'007));
  EXPECT_THAT(NumbersOf(Find({"", LogLevel::kWarning}, 10)), ElementsAre(7, 20'007, 40'007, 60'007, 80'007));
  EXPECT_THAT(Find({"", LogLevel::kError}, 10).lines, IsEmpty());
  const auto two = Find({"shard", LogLevel::kWarning}, 2);
  EXPECT_THAT(NumbersOf(two), ElementsAre(60'007, 80'007));
  EXPECT_THAT(NumbersOf(Find({"shard", LogLevel::kWarning}, 2, two.previous)), ElementsAre(20'007, 40'007));
  // The digits are in each line's number and time, but these are not its text.
  EXPECT_THAT(NumbersOf(Find({"31 s", LogLevel::kDebug}, 1)), ElementsAre(80'007));
  EXPECT_THAT(Find({"\t80007\t", LogLevel::kDebug}, 10).lines, IsEmpty());
}

TEST_F(LogSearch, WhatFilesWriteOtherwiseIsFoundAsItWasSaid) {
  Write(1, 3, 0, [](uint64_t n) { return n == 2 ? "C:\\new\\path" : "c:/new/path\nnext"; });
  EXPECT_THAT(NumbersOf(Find({"c:\\new", LogLevel::kDebug}, 10)), ElementsAre(2));
  EXPECT_THAT(NumbersOf(Find({"path\nnext", LogLevel::kDebug}, 10)), ElementsAre(1, 3));
  EXPECT_THAT(Find({"nnext", LogLevel::kDebug}, 10).lines, IsEmpty());
}

TEST_F(LogSearch, SaysWhatWasRemoved) {
  Write(500, 700, 8, Plain);
  Write(701, 800, 9, Plain);
  const auto found = Find({}, 1000);
  ASSERT_THAT(found.lines, SizeIs(302));
  EXPECT_THAT(found.lines.front().text, HasSubstr("lines 1 to 499 were removed"));
  EXPECT_EQ(found.previous, 0u);
  EXPECT_THAT(Find({"step 500.", LogLevel::kDebug}, 5).lines, SizeIs(1));
}

TEST_F(LogSearch, EveryLineIsFoundByItsNumber) {
  Write(1, 900, 0, [](uint64_t n) { return std::string(n % 91, 'x'); });
  Write(901, 1200, 1,
        [](uint64_t n) { return n == 1000 ? std::string(100'000, 'y') : std::string(n % 7, 'x'); });
  for (uint64_t n = 1; n <= 1200; ++n) {
    auto cursor = CursorAfter(folder, kLog, stored, n - 1).value();
    const auto lines = ReadLines(folder, kLog, stored, cursor, 200'000).value();
    ASSERT_FALSE(lines.empty()) << n;
    ASSERT_EQ(lines.front().number, n);
  }
}

}  // namespace
}  // namespace imgd
