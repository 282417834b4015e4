#include "trainer/data/webdataset_writer.h"

#include <algorithm>

#include "common/files.h"
#include "trainer/data/image_name.h"
#include "trainer/data/shard_writer.h"
#include "trainer/data/tar_writer.h"

namespace imgd::data {
namespace {

class WebDatasetWriter final : public ShardWriter {
 public:
  WebDatasetWriter(const OutputSet& set, std::string name, TarWriter tar)
      : set_(set), name_(std::move(name)), tar_(std::move(tar)) {}

  Status Add(const OutputImage& image) override {
    const std::string key = WebDatasetKeyOf(image.name);
    const bool png = image.facts.kind == FileKind::Kind::kPng;
    IMGD_ASSIGN(const uint64_t offset, tar_.Add(key + (png ? ".png" : ".jpg"), image.file));
    const std::string label = std::to_string(image.label);
    IMGD_TRY(tar_.Add(key + ".cls", AsBytes(label)));
    index_.images.push_back({.key = key,
                             .offset = offset,
                             .size = static_cast<uint32_t>(image.file.size()),
                             .label = image.label,
                             .width = image.facts.width,
                             .height = image.facts.height,
                             .restarts = std::string(image.restarts)});
    return {};
  }

  Result<SetDescription::Shard> Finish() override {
    IMGD_TRY(tar_.Finish());
    index_.shard_bytes = tar_.bytes();
    if (set_.index) {
      IMGD_TRY(WriteFileAtomically(set_.folder + "/" + name_ + ".idx", EncodeShardIndex(index_)));
    }
    return SetDescription::Shard{name_, tar_.bytes(), static_cast<uint32_t>(index_.images.size()),
                                 fmt::format("{:08x}", tar_.crc32c())};
  }

 private:
  const OutputSet& set_;
  const std::string name_;
  TarWriter tar_;
  ShardIndex index_;
};

}  // namespace

std::string WebDatasetKeyOf(std::string_view name) {
  std::string key(WithoutImageEnding(name));
  std::replace(key.begin() + static_cast<ptrdiff_t>(key.rfind('/') + 1), key.end(), '.', '_');
  return key;
}

Result<std::unique_ptr<ShardWriter>> OpenWebDatasetWriter(const OutputSet& set, const std::string& shard) {
  IMGD_ASSIGN(auto tar, TarWriter::Create(set.folder + "/" + shard));
  return std::make_unique<WebDatasetWriter>(set, shard, std::move(tar));
}

}  // namespace imgd::data
