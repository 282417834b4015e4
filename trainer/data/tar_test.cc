#include "trainer/data/tar.h"

#include <gmock/gmock.h>

#include <cstring>

#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TarTest : public testing::Test {
 protected:
  /// "name=content" of each file, or the error.
  std::vector<std::string> List(const std::string& archive, TarLinks links = TarLinks::kRefused) {
    const auto source = OpenFileSource(folder_.Write("a.tar", archive).string()).value();
    TarReader tar(*source, links);
    std::vector<std::string> out;
    for (;;) {
      const auto entry = tar.Next();
      if (!entry) return {entry.error().message};
      if (!*entry) return out;
      std::string content((*entry)->size, '\0');
      EXPECT_TRUE(
          source->ReadAt((*entry)->offset, {reinterpret_cast<uint8_t*>(content.data()), content.size()}));
      out.push_back((*entry)->name + "=" + content);
    }
  }

  TempFolder folder_;
};

TEST_F(TarTest, FilesLieWhereItSays) {
  EXPECT_THAT(List(Tar({{"a.jpg", "pixels"}, {"a.cls", "7"}, {"empty", ""}})),
              ElementsAre("a.jpg=pixels", "a.cls=7", "empty="));
}

TEST_F(TarTest, FoldersArePassedOverAndLinksAreNot) {
  EXPECT_THAT(List(TarMember("folder/", "", '5') + Tar({{"folder/a", "1"}})), ElementsAre("folder/a=1"));
  for (const auto& [type, what] :
       {std::pair('1', "hard link"), std::pair('2', "symbolic link"), std::pair('3', "device"),
        std::pair('4', "device"), std::pair('6', "pipe")}) {
    const std::string archive = TarMember("x.jpg", "", type) + Tar({{"folder/a", "1"}});
    EXPECT_THAT(List(archive).at(0), HasSubstr(fmt::format("'x.jpg' is a {}, where only files and", what)));
    EXPECT_THAT(List(archive, TarLinks::kPassedOver), ElementsAre("folder/a=1"));
  }
}

TEST_F(TarTest, NamesAreOnlyText) {
  EXPECT_THAT(List(Tar({{"/etc/a", "1"}, {"../../b", "2"}, {"c/../d", "3"}, {"./e", "4"}})),
              ElementsAre("/etc/a=1", "../../b=2", "c/../d=3", "./e=4"));
}

TEST_F(TarTest, SparseFilesOfAllKindsAreRefused) {
  EXPECT_THAT(List(TarMember("a", "", 'S')).at(0), HasSubstr("sparse files can't be read"));
  for (const std::string record : {"22 GNU.sparse.major=1\n", "25 GNU.sparse.realsize=9\n"}) {
    for (const char type : {'x', 'g'})
      EXPECT_THAT(List(TarMember("pax", record, type) + TarMember("a", "1")).at(0),
                  HasSubstr("sparse files"));
  }
}

TEST_F(TarTest, LongNamesOfBothKinds) {
  const std::string name = std::string(150, 'n') + ".jpg";
  const std::string record = fmt::format("{} path={}\n", name.size() + 10, name);
  EXPECT_THAT(List(TarMember("@LongLink", name + '\0', 'L') + Tar({{"short", "1"}})),
              ElementsAre(name + "=1"));
  EXPECT_THAT(List(TarMember("pax", record, 'x') + Tar({{"short", "1"}, {"next", "2"}})),
              ElementsAre(name + "=1", "next=2"));
}

TEST_F(TarTest, ASizeInBase256AndInPax) {
  std::string large = TarMember("a", "12345");
  std::memset(&large[124], 0, 12);
  large[124] = static_cast<char>(0x80);
  large[135] = 5;
  FixTarChecksum(large);
  EXPECT_THAT(List(large), ElementsAre("a=12345"));
  std::string other = TarMember("a", "12345");
  std::memcpy(&other[124], "00000000000\0", 12);
  FixTarChecksum(other);
  EXPECT_THAT(List(TarMember("pax", "10 size=5\n", 'x') + other), ElementsAre("a=12345"));
}

TEST_F(TarTest, WithoutTheBlocksOfZerosAtItsEnd) {
  EXPECT_THAT(List(TarMember("a", "1") + TarMember("b", "2")), ElementsAre("a=1", "b=2"));
}

TEST_F(TarTest, ItsEndIsAllZerosOrMissing) {
  const auto has_end = [&](const std::string& archive) {
    const auto source = OpenFileSource(folder_.Write("a.tar", archive).string()).value();
    TarReader tar(*source);
    while (tar.Next().value()) {
    }
    return tar.has_end();
  };
  const std::string file = TarMember("a", "1");
  EXPECT_TRUE(has_end(file + std::string(1024, '\0')));
  EXPECT_TRUE(has_end(file + std::string(200'000, '\0')));
  EXPECT_FALSE(has_end(file + std::string(512, '\0')));
  EXPECT_FALSE(has_end(file));
  EXPECT_THAT(
      List(file + std::string(1024, '\0') + TarMember("b", "2")).at(0),
      HasSubstr("a.tar is no good tar archive at byte 1024: the zeros that end an archive begin here, but "
                "there is data behind them at byte 2048"));
  EXPECT_THAT(List(file + std::string(150'000, '\0') + "x").at(0), HasSubstr("behind them at byte 151024"));
}

TEST_F(TarTest, LiesAreFound) {
  const auto lying = [](auto change) {
    std::string archive = TarMember("a", "12345");
    change(archive);
    FixTarChecksum(archive);
    return archive;
  };
  EXPECT_THAT(List("not a tar archive at all").at(0), HasSubstr("at byte 0: it ends within a header"));
  EXPECT_THAT(List(std::string(2000, 'x')).at(0), HasSubstr("at byte 0: the header's checksum is wrong"));
  EXPECT_THAT(List(lying([](auto& a) { std::memcpy(&a[124], "77777777777", 11); })).at(0),
              HasSubstr("a file of 8589934591 bytes, where 512 are left"));
  EXPECT_THAT(List(lying([](auto& a) { std::memcpy(&a[124], "12x45678901", 11); })).at(0),
              HasSubstr("the size is no number"));
  EXPECT_THAT(List(lying([](auto& a) { std::memset(&a[124], 0xFF, 12); })).at(0),
              HasSubstr("the size is no"));
  EXPECT_THAT(List(lying([](auto& a) { a[156] = 'S'; })).at(0), HasSubstr("sparse files can't be read"));
  EXPECT_THAT(List(lying([](auto& a) { a[156] = 'Z'; })).at(0), HasSubstr("the unknown type 'Z'"));
  EXPECT_THAT(List(TarMember("a", "12345").substr(0, 514)).at(0),
              HasSubstr("a file of 5 bytes, where 2 are"));
  for (const char* record :
       {"99 path=x\n", "0 path=x\n", "abc", "9 pathxx\n", "-1 path=x\n", "10 size=x\n"}) {
    EXPECT_THAT(List(TarMember("pax", record, 'x') + TarMember("a", "1")).at(0), HasSubstr("extended header"))
        << record;
  }
}

}  // namespace
}  // namespace imgd::data
