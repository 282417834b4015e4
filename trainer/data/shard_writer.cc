#include "trainer/data/shard_writer.h"

#include <algorithm>
#include <array>

#include "trainer/data/folder_writer.h"
#include "trainer/data/webdataset_writer.h"

namespace imgd::data {
namespace {

bool IsImageEnding(std::string_view ending) {
  constexpr std::array<std::string_view, 3> kEndings = {"jpg", "jpeg", "png"};
  std::string lower(ending);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return std::ranges::find(kEndings, lower) != kEndings.end();
}

}  // namespace

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

std::string_view WithoutImageEnding(std::string_view name) {
  const size_t dot = name.rfind('.');
  const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  if (dot == std::string_view::npos || dot <= base || !IsImageEnding(name.substr(dot + 1))) return name;
  return name.substr(0, dot);
}

std::string WithImageEnding(std::string_view name) {
  return std::string(name) + (WithoutImageEnding(name).size() == name.size() ? ".JPEG" : "");
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
      return std::string(WithoutImageEnding(PathInFolder(set.classes[static_cast<size_t>(label)], name)));
    default:
      return std::string(WithoutImageEnding(name));
  }
}

}  // namespace imgd::data
