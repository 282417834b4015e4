#include "trainer/data/shard_look.h"

#include <algorithm>
#include <memory>

#include "common/url.h"
#include "trainer/data/dataset.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/recordio.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source.h"
#include "trainer/data/sources.h"
#include "trainer/data/tar.h"

namespace imgd::data {
namespace {

constexpr uint64_t kMostImageHeaderBytes = uint64_t{1}
                                           << 20;  ///< of a file, in which its headers are looked for

constexpr uint64_t kMostBytesRead = uint64_t{1} << 30;  ///< of an index or a description

Result<SetDescription> ReadSetDescription(const std::string& path, const SourceOpener& opener) {
  IMGD_ASSIGN(const auto text, opener.ReadSmall(path, kMostBytesRead));
  if (!text) return Fail(ErrorCode::kNotFound, "no file {}", Shown(path));
  return SetDescription::Parse(*text, Shown(path));
}

/// Classes that shards.json beside the file names; none where there is none that can be read.
std::vector<std::string> ClassesBeside(const std::string& path, const SourceOpener& opener) {
  auto set = ReadSetDescription(Beside(FolderOf(path), kDescriptionName), opener);
  return set ? std::move(set->classes) : std::vector<std::string>();
}

std::optional<ImageFacts> FactsOf(const Source& shard, uint64_t offset, uint64_t bytes, uint32_t skip) {
  std::vector<uint8_t> start;
  if (skip != 0) {
    auto record = ReadRecord(shard, offset, std::min(bytes + skip, Dataset::kMaxFileBytes));
    if (!record || record->size() < skip) return std::nullopt;
    start.assign(record->begin() + skip, record->end());
  } else {
    start.resize(std::min(bytes, kMostImageHeaderBytes));
    if (!shard.ReadAt(offset, start)) return std::nullopt;
  }
  return LookAtImage(start);
}

/// Of a shard that could be scanned.
std::string FormName(const Source& shard) {
  switch (FormOf(shard.name())) {
    case ShardForm::kRecordIo:
      return "RecordIO";
    case ShardForm::kTfRecord:
      return "TFRecord";
    case ShardForm::kTar:
      break;
  }
  return HoldsTars(shard).value_or(false) ? "tar of class tars" : "WebDataset";
}

void TakeEntries(const std::vector<std::string>& classes, const Source* shard, const ShardIndex& index,
                 uint64_t most, ShardLook& look) {
  look.images = index.images.size();
  for (size_t i = 0; i < std::min<uint64_t>(most, index.images.size()); ++i) {
    const auto& image = index.images[i];
    ShardEntry entry{.key = image.key, .label = image.label, .offset = image.offset, .bytes = image.size};
    const auto named = index.class_names.find(image.label);
    if (named != index.class_names.end()) {
      entry.class_name = named->second;
    } else if (static_cast<size_t>(image.label) < classes.size()) {
      entry.class_name = classes[static_cast<size_t>(image.label)];
    }
    if (shard != nullptr) entry.facts = FactsOf(*shard, image.offset, image.size, image.skip);
    look.entries.push_back(std::move(entry));
  }
}

/// The files of a tar that is no shard of samples with labels.
Result<ShardLook> LookIntoTar(const Source& archive, uint64_t most, std::string why) {
  ShardLook look{.form = "tar", .bytes = archive.size(), .note = std::move(why)};
  TarReader tar(archive, TarLinks::kPassedOver);  // links are none of its files
  for (;;) {
    IMGD_ASSIGN(auto file, tar.Next());
    if (!file) return look;
    if (look.images++ >= most) continue;
    ShardEntry entry{.key = std::move(file->name), .offset = file->offset, .bytes = file->size};
    entry.facts = FactsOf(archive, file->offset, file->size, 0);
    look.entries.push_back(std::move(entry));
  }
}

Result<ShardLook> LookIntoIndex(const std::string& path, const SourceOpener& opener, uint64_t most) {
  IMGD_ASSIGN(const auto bytes, opener.ReadSmall(path, kMostBytesRead));
  if (!bytes) return Fail(ErrorCode::kNotFound, "no file {}", Shown(path));
  IMGD_ASSIGN(const auto index, DecodeShardIndex(*bytes, Shown(path)));
  const std::string shard_path = path.substr(0, path.size() - 4);
  ShardLook look{.form = "index", .bytes = bytes->size()};
  std::shared_ptr<Source> shard;
  if (auto opened = opener.OpenPlain(shard_path)) shard = std::move(*opened);
  if (shard == nullptr) {
    look.note = fmt::format("the shard itself, {}, is not there", shard_path);
  } else if (shard->size() != index.shard_bytes) {
    look.note = fmt::format("it is the index of a shard of {} bytes, but {} has {}", index.shard_bytes,
                            shard_path, shard->size());
    shard.reset();
  }
  TakeEntries(ClassesBeside(path, opener), shard.get(), index, most, look);
  return look;
}

}  // namespace

Result<ShardLook> LookIntoShard(const std::string& path, uint64_t most) {
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  const SourceOpener opener(std::move(settings));
  if (path.ends_with(".idx")) return LookIntoIndex(path, opener, most);
  IMGD_ASSIGN(const auto shard, opener.OpenPlain(path));
  auto index = ScanShard(WindowSource(*shard));
  if (!index && FormOf(shard->name()) == ShardForm::kTar) {
    auto plain = LookIntoTar(*shard, most, index.error().message);
    if (plain) return plain;
  }
  if (!index) return tl::unexpected<Error>(std::move(index).error());
  ShardLook look{.form = FormName(*shard), .bytes = shard->size()};
  TakeEntries(ClassesBeside(path, opener), shard.get(), *index, most, look);
  return look;
}

Result<SetDescription> LookIntoDescription(const std::string& path) {
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  return ReadSetDescription(path, SourceOpener(std::move(settings)));
}

}  // namespace imgd::data
