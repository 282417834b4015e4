#include "trainer/data/shard_writer.h"

#include "trainer/data/folder_writer.h"
#include "trainer/data/image_name.h"
#include "trainer/data/webdataset_writer.h"

namespace imgd::data {
std::string_view NameOf(OutputForm form) {
  switch (form) {
    case OutputForm::kTfRecord:
      return "tfrecord";
    case OutputForm::kRecordIo:
      return "recordio";
    case OutputForm::kImageFolder:
      return "imagefolder";
    case OutputForm::kWebDataset:
      break;
  }
  return "webdataset";
}

std::string ShardNameOf(const OutputSet& set, uint64_t shard) {
  switch (set.form) {
    case OutputForm::kTfRecord:
      return fmt::format("{}-{:05}-of-{:05}", set.name, shard, set.shards);
    case OutputForm::kRecordIo:
      return set.shards == 1 ? set.name + ".rec" : fmt::format("{}-{:06}.rec", set.name, shard);
    case OutputForm::kImageFolder:
      return fmt::format("block-{:06}", shard);
    case OutputForm::kWebDataset:
      break;
  }
  return fmt::format("{}-{:06}.tar", set.name, shard);
}

Result<std::unique_ptr<ShardWriter>> OpenShardWriter(const OutputSet& set, uint64_t shard) {
  const std::string name = ShardNameOf(set, shard);
  switch (set.form) {
    case OutputForm::kTfRecord:
      return OpenTfRecordWriter(set, name);
    case OutputForm::kRecordIo:
      return OpenRecordIoWriter(set, name);
    case OutputForm::kImageFolder:
      return OpenFolderWriter(set, name);
    case OutputForm::kWebDataset:
      break;
  }
  return OpenWebDatasetWriter(set, name);
}

std::string UniqueNameOf(const OutputSet& set, std::string_view name, int32_t label) {
  switch (set.form) {
    case OutputForm::kWebDataset:
      return WebDatasetKeyOf(name);
    case OutputForm::kImageFolder:
      return PathInFolder(set.classes[static_cast<size_t>(label)], name);
    default:
      return std::string(WithoutImageEnding(name));
  }
}

}  // namespace imgd::data
