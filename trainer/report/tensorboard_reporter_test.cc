#include "trainer/report/tensorboard_reporter.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/tfrecord.h"
#include "trainer/report/tensorboard_writer.h"

namespace imgd::report {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class SetClock final : public Clock {
 public:
  Instant Now() const override { return {}; }
  WallTime Wall() const override { return {micros}; }
  int64_t micros = 1'500'000;
};

// What SetClock's first time is, in Event.wall_time.
const std::string kTime = "\x09\0\0\0\0\0\0\xF8\x3F"s;
const std::string kVersion = kTime + "\x1A\x0D" + "brain.Event:2";

class Tensorboard : public testing::Test {
 protected:
  Tensorboard() {
    std::string pattern = (fs::temp_directory_path() / "board-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Tensorboard() override { fs::remove_all(folder_); }

  FiguresPlace Place() const { return {folder_ / "logs", 7}; }
  std::unique_ptr<Reporter> Open() {
    return MakeTensorboardReporter(Place(), clock_,
                                   [this](const std::string& note) { notes_.push_back(note); });
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "logs")) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  /// The content of each record, whose lengths and checksums are right.
  static std::vector<std::string> EventsIn(const fs::path& path) {
    const std::string file = *ReadFile(path);
    const auto crc_at = [&](size_t at) {
      uint32_t crc = 0;
      std::memcpy(&crc, file.data() + at, 4);
      return crc;
    };
    std::vector<std::string> events;
    for (size_t at = 0; at < file.size();) {
      uint64_t length = 0;
      std::memcpy(&length, file.data() + at, 8);
      EXPECT_EQ(crc_at(at + 8), data::MaskedCrc(data::Crc32c(data::AsBytes(file.substr(at, 8)))));
      events.push_back(file.substr(at + 12, length));
      EXPECT_EQ(crc_at(at + 12 + length), data::MaskedCrc(data::Crc32c(data::AsBytes(events.back()))));
      at += 16 + length;
    }
    return events;
  }

  SetClock clock_;
  fs::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(Tensorboard, WritesTheBytesThatTheFormatAsksFor) {
  TensorboardWriter writer(Place(), clock_);
  writer.StartAfter(2);
  ASSERT_TRUE(writer.AddScalars({.step = 300, .scalars = {{"a", 0.5}, {"b", -2}}}).has_value());
  EXPECT_THAT(EventsIn(Files().at(0)),
              ElementsAre(kVersion,
                          // step 3; session_log: status START
                          kTime + "\x10\x03\x3A\x02\x08\x01",
                          // step 300; a summary of 20 bytes; two values of 8
                          kTime + "\x10\xAC\x02\x2A\x14" + "\x0A\x08\x0A\x01"s + "a" + "\x15\0\0\0\x3F"s +
                              "\x0A\x08\x0A\x01"s + "b" + "\x15\0\0\0\xC0"s));
  // As TensorFlow frames the version: the checksums are those of its own writer for this record.
  const std::string file = *ReadFile(Files().at(0));
  EXPECT_EQ(file.substr(0, 8), "\x18\0\0\0\0\0\0\0"s);
  EXPECT_EQ(file.substr(8, 4), "\xA3\x7F\x4B\x22"s);
}

TEST_F(Tensorboard, ImagesComeWithTheirSize) {
  TensorboardWriter writer(Place(), clock_);
  ASSERT_TRUE(writer.AddImage(1, "t", {.width = 200, .height = 5, .channels = 1, .file = "PNG"}).has_value());
  EXPECT_EQ(EventsIn(Files().at(0)).at(2),
            kTime + "\x10\x01\x2A\x13\x0A\x11\x0A\x01t" + "\x22\x0C\x08\x05\x10\xC8\x01\x18\x01\x22\x03PNG"s);
}

TEST_F(Tensorboard, FiguresAreInTheFileWhenTheyWereReported) {
  auto reporter = Open();
  reporter->On(Started{});
  EXPECT_FALSE(fs::exists(folder_ / "logs"));
  reporter->On(StepFigures{.step = 5});
  EXPECT_EQ(EventsIn(Files().at(0)).size(), 3U);
  reporter->On(EpochFigures{.step = 6});
  const auto events = EventsIn(Files().at(0));
  ASSERT_EQ(events.size(), 4U);
  for (const char* tag : {"train/loss", "train/top1", "train/learning_rate", "train/gradient_norm",
                          "train/images_per_second", "train/input_wait"}) {
    EXPECT_THAT(events[2], HasSubstr(tag));
  }
  for (const char* tag : {"val/loss", "val/top1", "val/top5"}) EXPECT_THAT(events[3], HasSubstr(tag));
}

TEST_F(Tensorboard, PicturesOfSamplesAndOfTheMatrixAreImages) {
  auto reporter = Open();
  reporter->On(
      SampleFigures{.step = 1,
                    .size = 1,
                    .samples = {{.rgb = {1, 2, 3}, .label = "cat", .answer = "dog 51%", .right = false}}});
  reporter->On(ClassFigures{.step = 9, .names = {"a"}, .counts = {{1, 1, 1}}, .confusion = {1}});
  reporter->On(ClassFigures{.step = 9, .names = {"a"}, .counts = {{1, 1, 1}}});
  const auto events = EventsIn(Files().at(0));
  ASSERT_EQ(events.size(), 4U) << "without the matrix there is no picture of it";
  EXPECT_THAT(events[2], testing::AllOf(HasSubstr("train/samples"), HasSubstr("JFIF")));
  EXPECT_THAT(events[3], testing::AllOf(HasSubstr("val/confusion_matrix"), HasSubstr("PNG")));
}

TEST_F(Tensorboard, AResumedRunHasAFileOfItsOwnThatTakesBackWhatIsTrainedAgain) {
  auto first = Open();
  first->On(Started{});
  for (uint64_t step : {1U, 2U, 3U}) first->On(StepFigures{.step = step});
  const std::string before = *ReadFile(Files().at(0));
  clock_.micros += 5'000'000;
  auto second = Open();
  second->On(Started{.start_step = 2});
  second->On(StepFigures{.step = 3});
  const auto files = Files();
  ASSERT_EQ(files.size(), 2U);
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  EXPECT_EQ(files[0].filename(),
            fmt::format("events.out.tfevents.0000000001.{}.{}.7", host.data(), ::getpid()));
  EXPECT_EQ(files[1].filename(),
            fmt::format("events.out.tfevents.0000000006.{}.{}.7", host.data(), ::getpid()));
  EXPECT_EQ(*ReadFile(files[0]), before);
  EXPECT_THAT(EventsIn(files[1]).at(1), HasSubstr("\x10\x03\x3A\x02\x08\x01"));
}

TEST_F(Tensorboard, AFolderThatCannotBeMadeIsNotedOnceAndTriedAgain) {
  std::ofstream(folder_ / "logs") << "a file";
  auto reporter = Open();
  for (uint64_t step : {1U, 2U, 3U}) reporter->On(StepFigures{.step = step});
  EXPECT_THAT(notes_, ElementsAre(HasSubstr((folder_ / "logs").native())));
  fs::remove(folder_ / "logs");
  reporter->On(Finished{});
  EXPECT_EQ(EventsIn(Files().at(0)).size(), 5U);
  EXPECT_THAT(notes_, testing::SizeIs(1));
}

}  // namespace
}  // namespace imgd::report
