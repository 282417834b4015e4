// The ranks' logs from the bytes of a pipe to the lines that the daemon gets.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/follow.h"
#include "agent/shim/log_writer.h"
#include "agent/testing/temp_dir.h"
#include "gmock/gmock.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kNoLimit = 1ULL << 30;

std::vector<std::string> Split(const std::vector<std::string>& chunks) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (const auto& chunk : chunks) splitter.Feed(chunk, take);
  splitter.Finish(take);
  return lines;
}

TEST(LineSplitter, CutsAtNewlinesWhereverTheReadsFall) {
  EXPECT_THAT(Split({"one\ntw", "o\nthr", "ee"}), ElementsAre("one", "two", "three"));
  EXPECT_THAT(Split({"a\r\nb\n\nc\n"}), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(Split({}), IsEmpty());
}

TEST(LineSplitter, ALongLineComesInPiecesThatKeepCharactersWhole) {
  const std::string most(kMaxLineBytes, 'x');
  EXPECT_THAT(Split({most + "\n"}), ElementsAre(most));
  EXPECT_THAT(Split({most + "y\n"}), ElementsAre(most, "y"));
  // The last byte that would fit is the first of a two-byte character.
  const std::string almost(kMaxLineBytes - 1, 'x');
  EXPECT_THAT(Split({almost + "\xC3\xA9z"}), ElementsAre(almost, "\xC3\xA9z"));
}

TEST(LogSegment, ARecordIsReadBackAndATornOneIsNot) {
  std::string data;
  AppendLogRecord(data, {7, 1234567, true, "hello"});
  LogRecord record;
  size_t used = 0;
  for (size_t size = 0; size < data.size(); ++size) {
    EXPECT_EQ(ParseLogRecord(std::string_view(data).substr(0, size), &record, &used), LogParse::kPartial);
  }
  ASSERT_EQ(ParseLogRecord(data, &record, &used), LogParse::kRecord);
  EXPECT_EQ(used, data.size());
  EXPECT_EQ(record.number, 7);
  EXPECT_EQ(record.time_us, 1234567);
  EXPECT_TRUE(record.is_stderr);
  EXPECT_EQ(record.text, "hello");
  data.back() = '!';
  EXPECT_EQ(ParseLogRecord(data, &record, &used), LogParse::kCorrupt);
  EXPECT_EQ(ParseLogRecord("\xFF\xFF\xFF\xFF....", &record, &used), LogParse::kCorrupt);
}

TEST(LogSegment, NamesAreReadBack) {
  const LogSegment segment{3, 12345};
  EXPECT_EQ(segment.Name(), "log.3.12345");
  EXPECT_EQ(LogSegment::Parse("log.3.12345"), segment);
  for (const auto* name : {"log.3", "log.x.1", "log.3.1x", "events.3", "log..1"})
    EXPECT_FALSE(LogSegment::Parse(name));
}

class LogTest : public testing::Test {
 protected:
  LogFollower Follower() { return {RunDir{dir_.path()}, 0, 5, 2}; }
  static std::vector<std::string> ReadAll(LogFollower& follower) {
    std::vector<std::string> lines;
    while (true) {
      v1::LogLines batch;
      if (follower.Read(1 << 10, &batch) == 0) return lines;
      for (const auto& line : batch.lines())
        lines.push_back(fmt::format("{}:{}", line.line_number(), line.text()));
    }
  }
  static void Write(LogWriter& writer, std::string_view text) {
    writer.Append(0, 1, false, text);
    writer.Flush(0);
  }
  TempDir dir_;
};

TEST_F(LogTest, LinesAreFollowedAsTheyAreWritten) {
  LogWriter writer(dir_.path(), 1, kNoLimit);
  auto follower = Follower();
  EXPECT_THAT(ReadAll(follower), IsEmpty());
  Write(writer, "a");
  Write(writer, "b");
  EXPECT_THAT(ReadAll(follower), ElementsAre("1:a", "2:b"));
  Write(writer, "c");
  EXPECT_THAT(ReadAll(follower), ElementsAre("3:c"));
  follower.GoOnAfter(1);
  EXPECT_THAT(ReadAll(follower), ElementsAre("2:b", "3:c"));
}

TEST_F(LogTest, LinesGoOutWithRankGenerationAndValidUtf8) {
  LogWriter writer(dir_.path(), 1, kNoLimit);
  writer.Append(0, 42, true, "caf\xC3\xA9 \xFF");
  writer.Flush(0);
  auto follower = Follower();
  v1::LogLines batch;
  EXPECT_GT(follower.Read(1 << 10, &batch), 0);
  ASSERT_EQ(batch.lines_size(), 1);
  EXPECT_EQ(batch.lines(0).rank(), 5);
  EXPECT_EQ(batch.lines(0).generation(), 2);
  EXPECT_EQ(batch.lines(0).time_us(), 42);
  EXPECT_TRUE(batch.lines(0).is_stderr());
  EXPECT_EQ(batch.lines(0).text(), "caf\xC3\xA9 \xEF\xBF\xBD");
}

TEST_F(LogTest, SegmentsGoWhenAllTheirLinesAreAcknowledged) {
  LogWriter writer(dir_.path(), 1, 64 << 10);  // segments of 16 KiB
  const std::string text(1000, 'x');
  for (int i = 0; i < 40; ++i) Write(writer, text);
  auto segments = ListLogSegments(dir_.path(), 0);
  ASSERT_GE(segments.size(), 2);
  auto follower = Follower();
  EXPECT_EQ(ReadAll(follower).size(), 40);
  EXPECT_FALSE(follower.AllAcknowledged());
  follower.Acknowledge(segments[1].first_line - 2);
  EXPECT_EQ(ListLogSegments(dir_.path(), 0).size(), segments.size());
  follower.Acknowledge(segments[1].first_line - 1);
  EXPECT_EQ(ListLogSegments(dir_.path(), 0).size(), segments.size() - 1);
  follower.Acknowledge(40);
  EXPECT_TRUE(follower.AllAcknowledged());
  EXPECT_EQ(ListLogSegments(dir_.path(), 0).size(), 1) << "the one that is written now stays";
  Write(writer, "41");
  EXPECT_THAT(ReadAll(follower), ElementsAre("41:41"));
}

TEST_F(LogTest, TheOldestSegmentsGoWhenNobodyTakesThem) {
  constexpr uint64_t kLimit = 64 << 10;
  LogWriter writer(dir_.path(), 1, kLimit);
  const std::string text(1000, 'x');
  for (int i = 0; i < 500; ++i) Write(writer, text);
  uint64_t bytes = 0;
  const auto segments = ListLogSegments(dir_.path(), 0);
  for (const auto& segment : segments) bytes += std::filesystem::file_size(dir_ / segment.Name());
  EXPECT_LE(bytes, kLimit);
  auto follower = Follower();
  const auto lines = ReadAll(follower);
  const uint64_t lost = segments[0].first_line - 1;
  EXPECT_THAT(lines[0],
              HasSubstr(fmt::format("{}:[imgagent] {} lines are missing here (1 to {})", lost, lost, lost)));
  EXPECT_EQ(lines.size(), 500 - lost + 1);
}

TEST_F(LogTest, ATornTailIsWaitedForAndAnEndWithoutItIsSaid) {
  std::string data;
  AppendLogRecord(data, {1, 1, false, "whole"});
  const size_t whole = data.size();
  AppendLogRecord(data, {2, 1, false, "torn"});
  auto follower = Follower();
  dir_.Write("log.0.1", std::string_view(data).substr(0, whole + 5));
  EXPECT_THAT(ReadAll(follower), ElementsAre("1:whole"));
  std::ofstream(dir_ / "log.0.1", std::ios::app | std::ios::binary) << data.substr(whole + 5);
  EXPECT_THAT(ReadAll(follower), ElementsAre("2:torn"));
  follower.SetEnd(4);
  EXPECT_THAT(ReadAll(follower), ElementsAre(HasSubstr("4:[imgagent] 2 lines are missing here (3 to 4)")));
}

TEST_F(LogTest, AGapIsOfTheTimeOfTheLineAfterItOrTheLast) {
  std::string data;
  AppendLogRecord(data, {9, 500, false, "later"});
  dir_.Write("log.0.9", data);
  // Of an agent that has just begun, which has seen no line of before.
  auto follower = Follower();
  follower.GoOnAfter(3);
  v1::LogLines batch;
  EXPECT_GT(follower.Read(1 << 10, &batch), 0);
  ASSERT_EQ(batch.lines_size(), 2);
  EXPECT_EQ(batch.lines(0).line_number(), 8);
  EXPECT_EQ(batch.lines(0).time_us(), 500);
  auto other = Follower();
  other.GoOnAfter(9);
  other.SetEnd(12);
  v1::LogLines end;
  EXPECT_GT(other.Read(1 << 10, &end), 0);
  ASSERT_EQ(end.lines_size(), 1);
  EXPECT_EQ(end.lines(0).line_number(), 12);
  EXPECT_EQ(end.lines(0).time_us(), 500);
}

TEST_F(LogTest, ADamagedSegmentCostsItsLinesAndNotTheNext) {
  std::string data;
  AppendLogRecord(data, {1, 1, false, "good"});
  dir_.Write("log.0.1", data + "\xFF\xFF\xFF\xFFgarbage");
  std::string later;
  AppendLogRecord(later, {9, 1, false, "later"});
  auto follower = Follower();
  EXPECT_THAT(ReadAll(follower), ElementsAre("1:good"));
  dir_.Write("log.0.9", later);
  EXPECT_THAT(ReadAll(follower),
              ElementsAre(HasSubstr("8:[imgagent] 7 lines are missing here (2 to 8)"), "9:later"));
}

TEST_F(LogTest, ATailThatWasTakenBackIsReadAnew) {
  std::string first;
  AppendLogRecord(first, {1, 1, false, "first"});
  std::string taken_back;
  AppendLogRecord(taken_back, {2, 1, false, "of the same write"});
  const size_t whole = taken_back.size();
  AppendLogRecord(taken_back, {3, 1, false, std::string(100, 'x')});
  dir_.Write("log.0.1", first + taken_back.substr(0, whole + 50));
  auto follower = Follower();
  EXPECT_THAT(ReadAll(follower), ElementsAre("1:first", "2:of the same write"));
  std::string others;
  for (uint64_t number = 4; number <= 11; ++number)
    AppendLogRecord(others, {number, 1, false, "another one"});
  std::filesystem::resize_file(dir_ / "log.0.1", first.size());
  std::ofstream(dir_ / "log.0.1", std::ios::app | std::ios::binary) << others;
  const auto lines = ReadAll(follower);
  ASSERT_THAT(lines, SizeIs(9));
  EXPECT_THAT(lines[0], HasSubstr("1 lines are missing here (3 to 3)"));
  EXPECT_EQ(lines[1], "4:another one");
}

TEST_F(LogTest, AFullDiskCostsLinesThatAreCountedAndNothingElse) {
  const auto small = dir_ / "small";
  ::mkdir(small.c_str(), 0755);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no right to mount a small disk";
  {
    LogWriter writer(small, 1, kNoLimit);
    LogFollower follower(RunDir{small}, 0, 5, 2);
    const std::string filler(40 << 10, 'f');
    std::ofstream(small / "filler") << filler;
    const std::string text(1000, 'x');
    for (int i = 0; i < 50; ++i) Write(writer, text);
    const auto before = ReadAll(follower).size();
    EXPECT_LT(before, 50);
    EXPECT_GT(before, 5);
    ::unlink((small / "filler").c_str());
    Write(writer, "there is room again");
    EXPECT_EQ(writer.lines(0), 51);
    EXPECT_THAT(ReadAll(follower),
                ElementsAre(HasSubstr(fmt::format("{} lines are missing here", 50 - before)),
                            "51:there is room again"));
  }
  EXPECT_EQ(::umount(small.c_str()), 0);
}

class EventsTest : public testing::Test {
 protected:
  static std::string Event(uint64_t sequence) {
    v1::TrainerEvent event;
    event.set_sequence(sequence);
    event.mutable_step()->set_step(sequence * 10);
    const std::string body = event.SerializeAsString();
    return std::string({static_cast<char>(body.size()), 0, 0, 0}) + body;
  }
  void Append(const std::string& data) {
    std::ofstream(dir_ / "events.0", std::ios::app | std::ios::binary) << data;
  }
  std::vector<uint64_t> ReadAll(EventFollower& follower) {
    std::vector<uint64_t> sequences;
    while (true) {
      v1::TrainerEvents batch;
      if (follower.Read(64, &batch) == 0) return sequences;
      for (const auto& event : batch.events()) {
        sequences.push_back(event.sequence());
        if (event.has_lost())
          lost_.push_back(fmt::format("{}: {}", event.lost().count(), event.lost().reason()));
      }
    }
  }
  TempDir dir_;
  std::vector<std::string> lost_;  ///< how many, and why
  EventFollower follower_{RunDir{dir_.path()}, 0};
};

TEST_F(EventsTest, AreFollowedFromAnySequence) {
  EXPECT_THAT(ReadAll(follower_), IsEmpty());
  for (uint64_t i = 1; i <= 4; ++i) Append(Event(i));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(follower_.AllAcknowledged());
  follower_.Acknowledge(4);
  EXPECT_TRUE(follower_.AllAcknowledged());
  follower_.GoOnAfter(2);
  EXPECT_THAT(ReadAll(follower_), ElementsAre(3, 4));
}

TEST_F(EventsTest, WhatIsStoredIsReadOverInPieces) {
  for (uint64_t i = 1; i <= 100; ++i) Append(Event(i));
  follower_.GoOnAfter(100);
  int pieces = 0;
  v1::TrainerEvents batch;
  do {
    EXPECT_EQ(follower_.Read(64, &batch), 0u);
    ++pieces;
  } while (follower_.more());
  EXPECT_GT(pieces, 5);
  Append(Event(101));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(101));
}

TEST_F(EventsTest, WhatIsAcknowledgedIsNotReadOnceMore) {
  for (uint64_t i = 1; i <= 100; ++i) Append(Event(i));
  EXPECT_THAT(ReadAll(follower_), SizeIs(100));
  follower_.Acknowledge(30);
  follower_.GoOnAfter(30);
  v1::TrainerEvents batch;
  EXPECT_GT(follower_.Read(80, &batch), 0u) << "of 30 events the first 80 bytes are none of those after them";
  EXPECT_EQ(batch.events(0).sequence(), 31u);
  follower_.GoOnAfter(3);
  EXPECT_THAT(ReadAll(follower_), SizeIs(97)) << "a daemon that was restored from a backup";
}

TEST_F(EventsTest, AFileOfZerosIsDamaged) {
  Append(Event(1));
  std::filesystem::resize_file(dir_ / "events.0", uint64_t{1} << 40);
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1, 2));
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("neither this event nor any later one")));
}

TEST_F(EventsTest, ATornTailIsWaitedFor) {
  const std::string second = Event(2);
  Append(Event(1) + second.substr(0, 6));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1));
  Append(second.substr(6));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(2));
}

TEST_F(EventsTest, ALengthThatCannotBeEndsTheStreamAndNotTheAgent) {
  Append(Event(1) + "\xFF\xFF\xFF\x7Fgarbage" + Event(2));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1, 2));
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("neither this event nor any later one")));
  EXPECT_THAT(ReadAll(follower_), IsEmpty());
  follower_.GoOnAfter(2);
  EXPECT_THAT(ReadAll(follower_), IsEmpty()) << "it is said once, however often the daemon is back";
}

/// A whole record whose body is no event.
constexpr std::string_view kUnreadable("\x02\x00\x00\x00\xFF\xFF", 6);

TEST_F(EventsTest, EventsThatCannotBeReadKeepTheirPlace) {
  Append(Event(1) + std::string(kUnreadable) + std::string(kUnreadable) + Event(4));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1, 3, 4));
  EXPECT_THAT(lost_, ElementsAre("2: what the trainer wrote can't be read"));
  Append(std::string(kUnreadable));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(5)) << "also when nothing comes after it";
  Append(Event(6));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(6));
  follower_.GoOnAfter(2);
  EXPECT_THAT(ReadAll(follower_), ElementsAre(3, 4, 5, 6));
  follower_.GoOnAfter(5);
  EXPECT_THAT(ReadAll(follower_), ElementsAre(6));
}

TEST_F(EventsTest, EventsThatAreMissingInTheFileArePassedOver) {
  Append(Event(1) + Event(5));
  EXPECT_THAT(ReadAll(follower_), ElementsAre(1, 4, 5));
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("3: ")));
}

TEST(Window, CountsWhatIsOnItsWay) {
  Window window;
  window.Sent(10, 100);
  window.Sent(20, 200);
  EXPECT_EQ(window.bytes(), 300);
  window.Acknowledged(19);
  EXPECT_EQ(window.bytes(), 200);
  window.Acknowledged(20);
  EXPECT_EQ(window.bytes(), 0);
}

}  // namespace
}  // namespace imgd
