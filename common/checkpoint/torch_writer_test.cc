#include "common/checkpoint/torch_writer.h"

#include <gmock/gmock.h>
#include <zlib.h>

namespace imgd {
namespace {

using testing::HasSubstr;

// That torch.load() reads these files is shown in tests/python/test_checkpoints.py.

uint64_t NumberAt(const std::string& text, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text.at(at + i));
  return value;
}

struct ZippedFile {
  std::string name;
  std::string content;
  uint64_t offset = 0;  ///< of its content
};

/// By the central directory, as readers do; each is compared with its own head and checksum.
std::vector<ZippedFile> Unzip(const std::string& zip) {
  std::vector<ZippedFile> files;
  const size_t end = zip.size() - 22;
  EXPECT_EQ(zip.substr(end, 4), "PK\x05\x06");
  size_t at = NumberAt(zip, end + 16, 4);
  for (uint64_t left = NumberAt(zip, end + 10, 2); left > 0; --left) {
    EXPECT_EQ(zip.substr(at, 4), "PK\x01\x02");
    const size_t name_bytes = NumberAt(zip, at + 28, 2);
    const size_t size = NumberAt(zip, at + 24, 4);
    const size_t head = NumberAt(zip, at + 42, 4);
    EXPECT_EQ(zip.substr(head, 4), "PK\x03\x04");
    EXPECT_EQ(zip.substr(head + 4, 24), zip.substr(at + 6, 24)) << "head and directory say the same";
    const size_t begin = head + 30 + name_bytes + NumberAt(zip, head + 28, 2);
    ZippedFile file{zip.substr(at + 46, name_bytes), zip.substr(begin, size), begin};
    EXPECT_EQ(zip.substr(head + 30, name_bytes), file.name);
    EXPECT_EQ(NumberAt(zip, at + 16, 4),
              ::crc32(0, reinterpret_cast<const Bytef*>(file.content.data()), static_cast<uInt>(size)));
    files.push_back(file);
    at += 46 + name_bytes;
  }
  EXPECT_EQ(at, end);
  return files;
}

TEST(TorchWriter, IsAZipFileWithEachTensorAtAMultipleOf64Bytes) {
  std::string zip;
  const std::string bytes = "12345678";
  const auto written = WriteTorchFile({{"fc.weight", "F32", {2, 1}, bytes}, {"n", "I64", {}, bytes}},
                                      {{"lineage.json", "{}"}}, [&](std::string_view piece) {
                                        zip += piece;
                                        return Status();
                                      });
  ASSERT_TRUE(written.has_value()) << written.error().message;
  const auto files = Unzip(zip);
  ASSERT_EQ(files.size(), 6U);
  EXPECT_EQ(files[0].name, "archive/data.pkl");
  EXPECT_THAT(files[0].content, HasSubstr("fc.weight"));
  EXPECT_EQ(files[2].name, "archive/data/0");
  EXPECT_EQ(files[3].content, bytes);
  EXPECT_EQ(files[4].name, "archive/lineage.json");
  EXPECT_EQ(files[5].content, "3\n");
  for (const auto& file : files) EXPECT_EQ(file.offset % 64, 0U) << file.name;
}

TEST(TorchWriter, ATypeThatPyTorchLacksIsNamed) {
  const auto written =
      WriteTorchFile({{"w", "U64", {1}, "12345678"}}, {}, [](std::string_view) { return Status(); });
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().message, HasSubstr("tensor 'w' is of type U64"));
}

TEST(TorchWriter, WhatCannotBeWrittenIsReported) {
  const auto written = WriteTorchFile(
      {}, {}, [](std::string_view) -> Status { return Fail(ErrorCode::kResourceExhausted, "full"); });
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().message, "full");
}

}  // namespace
}  // namespace imgd
