#include "trainer/data/verify.h"

#include <gmock/gmock.h>

#include <cstring>

#include "common/files.h"
#include "trainer/data/convert.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/image_facts.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/jpeg_markers.h"
#include "trainer/data/restart_index.h"
#include "trainer/data/set_stats.h"
#include "trainer/data/shard_look.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_ilsvrc.h"
#include "trainer/data/test_records.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
namespace fs = std::filesystem;

class Verify : public testing::Test {
 protected:
  /// Four shards with three images each in "out".
  void MakeShards() {
    for (int i = 0; i < 12; ++i)
      folder_.Write(fmt::format("set/c{}/{:02}.jpg", i % 3, i), WavesJpeg(40 + i, 30, {}, i));
    ASSERT_TRUE(WriteShards(ImageFolder::Open(folder_.path() / "set").value(), {.name = "t", .shards = 4},
                            Path("out")));
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  /// "place: reason" with the folder's path left out.
  std::vector<std::string> Findings(const VerifyReport& report) const {
    std::vector<std::string> lines;
    for (const auto& finding : report.findings) {
      std::string line = finding.place + ": " + finding.reason;
      for (size_t at = line.find(folder_.path()); at != std::string::npos; at = line.find(folder_.path()))
        line.erase(at, folder_.path().string().size() + 1);
      lines.push_back(line);
    }
    return lines;
  }
  std::vector<std::string> FindingsOf(const std::string& name,
                                      const VerifyOptions& options = {.decode = true, .jobs = 2}) const {
    const auto report = VerifyDataset(Path(name), options);
    return report ? Findings(*report) : std::vector<std::string>{report.error().message};
  }

  TempFolder folder_;
};

TEST_F(Verify, AGoodSetHasNothingBroken) {
  MakeShards();
  uint64_t last = 0;
  const auto report = VerifyDataset(Path("out"), {.decode = true, .jobs = 2, .classes = 3},
                                    [&](VerifyPhase, uint64_t done, uint64_t total) {
                                      last = done;
                                      return done <= total;
                                    });
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_THAT(Findings(*report), IsEmpty());
  EXPECT_EQ(report->images, 12U);
  EXPECT_EQ(report->decoded, 12U);
  EXPECT_EQ(report->shards, 4U);
  EXPECT_EQ(report->checksums, 4U);
  EXPECT_EQ(report->indexes, 4U);
  EXPECT_EQ(last, 12U);
  EXPECT_THAT(report->class_images, ElementsAre(4, 4, 4));
  EXPECT_THAT(report->notes, IsEmpty());
}

TEST_F(Verify, NamesWhatIsMissingChangedOrTooMuch) {
  MakeShards();
  fs::remove(Path("out/t-000001.tar"));
  std::string shard = ReadFile(Path("out/t-000002.tar")).value();
  shard[600] = static_cast<char>(shard[600] ^ 1);  // within the first file
  folder_.Write("out/t-000002.tar", shard);
  folder_.Write("out/t-000003.tar.idx", ReadFile(Path("out/t-000000.tar.idx")).value());
  folder_.Write("out/t-000009.tar", "");
  EXPECT_THAT(FindingsOf("out"), ElementsAre("out/t-000001.tar: it is missing; shards.json names it",
                                             AllOf(HasSubstr("out/t-000002.tar: its checksum is "),
                                                   HasSubstr(", but shards.json says ")),
                                             HasSubstr("out/t-000003.tar.idx: "),
                                             "out/t-000009.tar: shards.json does not name it"));
}

TEST_F(Verify, GapsInTheNumbersOfShardsAreNamed) {
  MakeShards();
  fs::remove(Path("out/shards.json"));
  fs::remove(Path("out/t-000002.tar"));
  EXPECT_THAT(FindingsOf("out"), ElementsAre("out/t-000002.tar: it is missing"));
}

TEST_F(Verify, ImagesThatCannotBeDecodedAreNamedInOrder) {
  folder_.Write("set/a/1.jpg", WavesJpeg(50, 40));
  folder_.Write("set/a/2.jpg", WavesJpeg(50, 40).substr(0, 500));
  folder_.Write("set/b/3.png", "\x89PNG\r\n\x1A\n");
  folder_.Write("set/b/4.jpg", "");
  EXPECT_THAT(FindingsOf("set"), ElementsAre("set/a/2.jpg: Premature end of JPEG file",
                                             "set/b/3.png: not a JPEG file: it starts like a PNG file",
                                             "set/b/4.jpg: the file is empty"));
  EXPECT_THAT(FindingsOf("set", {.classes = 1000}),
              ElementsAre("classes: there are 2, where 1000 are asked for"));
  const auto few = VerifyDataset(Path("set"), {.decode = true, .most_findings = 1}).value();
  EXPECT_THAT(Findings(few), ElementsAre("set/a/2.jpg: Premature end of JPEG file"));
  EXPECT_EQ(few.broken, 3U);
  EXPECT_EQ(VerifyDataset(Path("none"), {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(VerifyDataset(Path("set"), {.decode = true}, [](auto...) { return false; }).error().code,
            ErrorCode::kCancelled);
}

TEST_F(Verify, WhatLibjpegOnlyWarnsOfIsNamedInItsWords) {
  std::string before = WavesJpeg(50, 40);
  before.insert(20, std::string("\0\x12\x34", 3));  // between two segments
  std::string after = WavesJpeg(50, 40);
  after.insert(after.size() - 2, std::string(40, '\x55'));
  auto marked = AddRestartMarkers(AsBytes(WavesJpeg(200, 100))).value().file;
  const size_t marker = marked.find("\xff\xd1", FirstScan(AsBytes(marked)).data() - AsBytes(marked).data());
  ASSERT_NE(marker, std::string::npos);
  marked[marker + 1] = '\xd5';
  folder_.Write("set/a/1.jpg", before);
  folder_.Write("set/a/2.jpg", marked);
  folder_.Write("set/b/3.jpg", WavesJpeg(50, 40));
  folder_.Write("set/b/4.jpg", after);
  EXPECT_THAT(FindingsOf("set"), ElementsAre("set/a/2.jpg: decodes, but is damaged: Corrupt JPEG data: found "
                                             "marker 0xd5 instead of RST1"));
  const auto report = VerifyDataset(Path("set"), {.decode = true}).value();
  ASSERT_THAT(report.warnings, SizeIs(2));
  EXPECT_EQ(report.warnings[0].reason, "Corrupt JPEG data: 3 extraneous bytes before marker 0xdb");
  EXPECT_THAT(report.warnings[1].place, HasSubstr("b/4.jpg"));
  EXPECT_THAT(report.warnings[1].reason, HasSubstr("extraneous bytes before marker 0xd9"));
  EXPECT_EQ(report.doubtful, 2U);
  const auto few = VerifyDataset(Path("set"), {.decode = true, .most_findings = 1}).value();
  EXPECT_THAT(few.warnings, SizeIs(1));
  EXPECT_EQ(few.doubtful, 2U);
}

TEST_F(Verify, TheOriginalArchivesAreSetsToo) {
  WriteMiniIlsvrc(folder_);
  EXPECT_THAT(FindingsOf("ILSVRC2012_img_val.tar"), IsEmpty());
  EXPECT_THAT(
      FindingsOf("ILSVRC2012_img_train.tar"),
      ElementsAre(AllOf(HasSubstr("n01440764/n01440764_24.JPEG at byte "), HasSubstr("like a PNG file"))));
}

TEST_F(Verify, RecordIoAsItIsConvertedIsGood) {
  MakeShards();
  ASSERT_TRUE(WriteShards(ImageFolder::Open(folder_.path() / "set").value(),
                          {.name = "t", .shards = 2, .form = OutputForm::kRecordIo}, Path("rec")));
  const auto report = VerifyDataset(Path("rec"), {.decode = true}).value();
  EXPECT_THAT(Findings(report), IsEmpty());
  EXPECT_EQ(report.indexes, 2U);
}

TEST_F(Verify, ATarWithoutItsEndIsNoFaultAndAHoleIsSaidOnce) {
  const std::string sample = TarMember("a.jpg", "A") + TarMember("a.cls", "0");
  folder_.Write("s.tar", sample + TarMember("b.gif", "B"));
  const auto cut = VerifyDataset(Path("s.tar"), {}).value();
  EXPECT_EQ(cut.broken, 0U);
  EXPECT_THAT(cut.notes, ElementsAre(HasSubstr("b.gif in "), HasSubstr("without the two blocks of zeros")));
  folder_.Write("s.tar", sample + std::string(512, '\0') + sample);
  const auto hole = VerifyDataset(Path("s.tar"), {}).value();
  EXPECT_THAT(Findings(hole),
              ElementsAre("s.tar: it is no good tar archive at byte 2048: the zeros that end an "
                          "archive begin here, but there is data behind them at byte 2560"));
  EXPECT_THAT(hole.notes,
              ElementsAre("the set can't be opened like this, so that its images were not looked at"));
}

TEST_F(Verify, TwoImagesOfOneNameAreNamed) {
  folder_.Write("t-0.tar", Tar({{"a.jpg", "x"}, {"a.cls", "0"}, {"b.jpg", "x"}, {"b.cls", "1"}}));
  folder_.Write("t-1.tar", Tar({{"a.jpg", "x"}, {"a.cls", "0"}}));
  EXPECT_THAT(FindingsOf("t-{0..1}.tar", {}),
              ElementsAre("a at byte 512 of t-1.tar: its name is also that of a at byte 512 of t-0.tar"));
}

/// A record with an image and a label and nothing else.
std::string Record(const std::string& image, char label) {
  const auto feature = [](const std::string& key, const std::string& value) {
    return Bytes(1, Bytes(1, key) + Bytes(2, value));
  };
  const std::string content =
      Bytes(1, feature("image/encoded", Bytes(1, Bytes(1, image))) +
                   feature("image/class/label", Bytes(3, Bytes(1, std::string(1, label)))));
  const std::string length = MatRaw(uint64_t{content.size()});
  return length + MatRaw(MaskedCrc(Crc32c(AsBytes(length)))) + content +
         MatRaw(MaskedCrc(Crc32c(AsBytes(content))));
}

TEST_F(Verify, ChecksumsOfTfRecordsContentAreCompared) {
  std::string bad = Record("second", 2);
  bad.replace(bad.find("second"), 6, "sEcond");
  folder_.Write("train-00000-of-00003", Record("first", 1) + bad);
  folder_.Write("train-00001-of-00003", Record("third", 1));
  const auto report = VerifyDataset(Path("train-*-of-00003"), {}).value();
  EXPECT_THAT(Findings(report),
              ElementsAre(HasSubstr("train-00000-of-00003: the checksum of the record at byte 7"),
                          "train-00002-of-00003: it is missing"));
  EXPECT_EQ(report.records, 3U);
  EXPECT_THAT(FindingsOf("train-00001-of-00003", {}), IsEmpty()) << "one shard is no set with gaps";
}

TEST(ImageNet, IsKnownByItsNumbers) {
  std::vector<std::string> classes;
  for (int c = 0; c < 1000; ++c) classes.push_back(fmt::format("n{:08}", c));
  std::vector<uint64_t> images(1000, 1300);
  images[0] = 732;
  for (uint64_t left = 1'300'000 - 568 - 1'281'167, c = 1; left > 0; ++c) {
    const uint64_t less = std::min<uint64_t>(left, 500);
    images[c] -= less;
    left -= less;
  }
  EXPECT_THAT(CompareToImageNet(classes, images),
              ElementsAre("this is the whole training set of ImageNet-1k: 1000 classes, 1281167 images"));
  images[5] = 10;
  EXPECT_THAT(CompareToImageNet(classes, images),
              ElementsAre(HasSubstr("is not the whole of it: 1000 classes instead of 1000"),
                          "1 of the classes have not 732 to 1300 images: n00000005 (10)"));
  std::vector<uint64_t> val(1000, 50);
  EXPECT_THAT(CompareToImageNet(classes, val), ElementsAre(HasSubstr("the whole validation set")));
  val.pop_back();
  classes.pop_back();
  EXPECT_THAT(CompareToImageNet(classes, val),
              ElementsAre(HasSubstr("999 classes instead of 1000, 49950 images instead of 50000")));
  EXPECT_THAT(CompareToImageNet({"cat", "dog"}, {50, 50}), IsEmpty());
}

ImageFacts Facts(const std::string& file) { return LookAtImage(AsBytes(file)); }

TEST(Facts, OfJpegFiles) {
  for (const int quality : {1, 30, 75, 90, 100})
    EXPECT_EQ(Facts(WavesJpeg(30, 20, {.quality = quality})).quality, quality);
  const auto colour = Facts(WavesJpeg(301, 202));
  EXPECT_EQ(colour.width, 301U);
  EXPECT_EQ(colour.height, 202U);
  EXPECT_EQ(colour.subsampling, "4:2:0");
  EXPECT_EQ(colour.colours, ImageFacts::Colours::kYcc);
  EXPECT_FALSE(colour.progressive);
  EXPECT_EQ(Facts(WavesJpeg(30, 20, {.components = 1})).colours, ImageFacts::Colours::kGrey);
  EXPECT_EQ(Facts(WavesJpeg(30, 20, {.components = 4})).colours, ImageFacts::Colours::kCmyk);
  EXPECT_TRUE(Facts(WavesJpeg(30, 20, {.progressive = true})).progressive);
  EXPECT_EQ(Facts(WavesJpeg(30, 20, {.chroma_sampling = 1})).subsampling, "4:4:4");
  const std::string file = WavesJpeg(30, 20);
  for (size_t size = 0; size < 700; ++size) static_cast<void>(Facts(file.substr(0, size)));
  for (size_t at = 0; at < 700; ++at) {
    for (const char c : {'\0', '\1', '\xFF'}) {
      std::string changed = file;
      changed[at] = c;
      static_cast<void>(Facts(changed));
    }
  }
}

TEST_F(Verify, StatisticsAreOfAllOrOfASample) {
  MakeShards();
  folder_.Write("set/c0/bad.jpg", "junk");
  const auto set = ImageFolder::Open(folder_.path() / "set").value();
  const auto stats = LookAtDataset(set, 0, 2).value();
  EXPECT_EQ(stats.looked_at, 13U);
  EXPECT_EQ(stats.unreadable, 1U);
  EXPECT_THAT(stats.formats, ElementsAre(Pair("JPEG", 12), Pair("unknown", 1)));
  EXPECT_EQ(stats.width.min, 40U);
  EXPECT_EQ(stats.width.median, 45U);
  EXPECT_EQ(stats.width.max, 51U);
  EXPECT_EQ(stats.quality.median, 90U);
  EXPECT_EQ(stats.per_class.max, 5U);
  EXPECT_EQ(stats.most, "c0");
  ASSERT_THAT(stats.bins, SizeIs(2));
  EXPECT_EQ(stats.bins[0].classes, 2U);
  EXPECT_EQ(LookAtDataset(set, 4, 1).value().looked_at, 4U);
}

TEST_F(Verify, ALookIntoAShardShowsItsImages) {
  MakeShards();
  const auto look = LookIntoShard(Path("out/t-000001.tar"), 2).value();
  EXPECT_EQ(look.form, "WebDataset");
  EXPECT_EQ(look.images, 3U);
  ASSERT_THAT(look.entries, SizeIs(2));
  EXPECT_THAT(look.entries[0].class_name, HasSubstr("c"));
  EXPECT_EQ(look.entries[0].facts->height, 30U);
  const auto index = LookIntoShard(Path("out/t-000001.tar.idx"), 2).value();
  EXPECT_EQ(index.form, "index");
  EXPECT_EQ(index.entries[1].key, look.entries[1].key);
  EXPECT_EQ(index.entries[1].facts->width, look.entries[1].facts->width);
  WriteMiniIlsvrc(folder_);
  EXPECT_EQ(LookIntoShard(Path("ILSVRC2012_img_train.tar"), 1).value().form, "tar of class tars");
  const auto val = LookIntoShard(Path("ILSVRC2012_img_val.tar"), 1).value();
  EXPECT_EQ(val.form, "tar");
  EXPECT_EQ(val.images, 6U);
  EXPECT_EQ(val.entries[0].facts->width, 50U);
  EXPECT_THAT(val.note, HasSubstr("has no label"));
}

}  // namespace
}  // namespace imgd::data
