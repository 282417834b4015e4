#include "trainer/data/recordio_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/files.h"
#include "trainer/data/image_name.h"
#include "trainer/data/recordio.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {
namespace {

constexpr size_t kMostRecordBytes = size_t{1} << 29;

Status AppendPart(OutputFile& file, RecordPiece kind, std::span<const uint8_t> content) {
  const std::array<uint32_t, 2> words = {kRecordMagic,
                                         uint32_t{kind} << 29 | static_cast<uint32_t>(content.size())};
  IMGD_TRY(file.Write({reinterpret_cast<const uint8_t*>(words.data()), kRecordHeaderBytes}));
  IMGD_TRY(file.Write(content));
  static constexpr std::array<uint8_t, 4> kZeros{};
  return file.Write(std::span(kZeros).first((4 - content.size() % 4) % 4));
}

class RecordIoWriter final : public ShardWriter {
 public:
  RecordIoWriter(const OutputSet& set, std::string name, OutputFile file)
      : set_(set), name_(std::move(name)), file_(std::move(file)) {}

  Status Add(const OutputImage& image) override {
    EncodeImageRecord(static_cast<float>(image.label), image.id, image.file, record_);
    const uint64_t start = file_.bytes();
    IMGD_ASSIGN(const bool cut, AppendRecord(file_, record_));
    index_.images.push_back({.key = std::string(WithoutImageEnding(image.name)),
                             .offset = cut ? start : start + kRecordHeaderBytes + kImageHeaderBytes,
                             .size = static_cast<uint32_t>(image.file.size()),
                             .label = image.label,
                             .skip = cut ? uint32_t{kImageHeaderBytes} : 0,
                             .width = image.facts.width,
                             .height = image.facts.height});
    offsets_ += fmt::format("{}\t{}\n", image.id, start);
    // A tab or line's end in a name would be read as one of the list.
    std::string name = WithImageEnding(image.name);
    std::ranges::replace_if(
        name, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, '_');
    list_ += fmt::format("{}\t{:.6f}\t{}\n", image.id, static_cast<double>(image.label), name);
    return {};
  }

  Result<SetDescription::Shard> Finish() override {
    const std::string path = set_.folder + "/" + name_;
    const std::string stem = path.substr(0, path.size() - std::strlen(".rec"));
    IMGD_TRY(file_.Finish());
    IMGD_TRY(WriteFileAtomically(stem + ".idx", offsets_));
    IMGD_TRY(WriteFileAtomically(stem + ".lst", list_));
    index_.shard_bytes = file_.bytes();
    if (set_.index) IMGD_TRY(WriteFileAtomically(path + ".idx", EncodeShardIndex(index_)));
    return SetDescription::Shard{name_, file_.bytes(), static_cast<uint32_t>(index_.images.size()),
                                 fmt::format("{:08x}", file_.crc32c())};
  }

 private:
  const OutputSet& set_;
  const std::string name_;
  OutputFile file_;
  ShardIndex index_;
  std::string offsets_;  ///< content of .idx
  std::string list_;     ///< content of .lst
  std::vector<uint8_t> record_;
};

}  // namespace

Result<bool> AppendRecord(OutputFile& file, std::span<const uint8_t> content) {
  if (content.size() >= kMostRecordBytes) {
    return Fail(ErrorCode::kInvalidArgument, "a record of {} MiB; RecordIO holds less than 512 MiB",
                content.size() >> 20);
  }
  size_t start = 0;
  for (size_t at = 0; at + 4 <= content.size(); at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, content.data() + at, 4);
    if (word != kRecordMagic) continue;
    IMGD_TRY(AppendPart(file, start == 0 ? kFirstPiece : kMiddlePiece, content.subspan(start, at - start)));
    start = at + 4;
  }
  IMGD_TRY(AppendPart(file, start == 0 ? kWholeRecord : kLastPiece, content.subspan(start)));
  return start != 0;
}

void EncodeImageRecord(float label, uint64_t id, std::span<const uint8_t> image, std::vector<uint8_t>& out) {
  out.assign(kImageHeaderBytes + image.size(), 0);
  std::memcpy(out.data() + 4, &label, 4);
  std::memcpy(out.data() + 8, &id, 8);
  std::ranges::copy(image, out.begin() + kImageHeaderBytes);
}

Result<std::unique_ptr<ShardWriter>> OpenRecordIoWriter(const OutputSet& set, const std::string& shard) {
  IMGD_ASSIGN(auto file, OutputFile::Create(set.folder + "/" + shard));
  return std::make_unique<RecordIoWriter>(set, shard, std::move(file));
}

}  // namespace imgd::data
