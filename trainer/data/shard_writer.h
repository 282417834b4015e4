#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/data/file_kind.h"
#include "trainer/data/object_box.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {

enum class OutputForm { kWebDataset, kTfRecord, kRecordIo, kImageFolder };

/// "webdataset" and so on.
std::string_view NameOf(OutputForm form);

/// What the shards of one set share.
struct OutputSet {
  OutputForm form = OutputForm::kWebDataset;
  std::string folder;
  std::string name;
  uint64_t shards = 1;
  std::vector<std::string> classes;  ///< by label
  std::vector<std::string> words;    ///< as Dataset::class_words()
  int32_t first_label = 1;           ///< TFRecord: what label 0 is written as
  bool index = true;                 ///< our own index beside a shard (WebDataset, RecordIO)
  bool boxes = false;                ///< TFRecord: records have image/object/bbox/*
};

/// One image as it goes into a shard. All are the caller's.
struct OutputImage {
  std::string_view name;  ///< with or without an ending
  uint64_t id = 0;        ///< its number in the source
  int32_t label = 0;
  std::span<const uint8_t> file;
  FileKind facts;             ///< of `file`
  std::string_view restarts;  ///< RestartIndex of `file`; empty where it has none
  std::span<const ObjectBox> boxes;
};

/// Writes one shard, front to back. It appears when it is finished; what was not finished is removed.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  /// Errors: as write(2); kInvalidArgument for a name that the form can't hold.
  virtual Status Add(const OutputImage& image) = 0;
  /// On disk when this returns. Errors: as write(2), fsync(2), rename(2).
  virtual Result<SetDescription::Shard> Finish() = 0;
};

/// The file of a shard: "train-000003.tar", "train-00003-of-00008", "train.rec". ImageFolder has none: there
/// it is a name for a block of images.
std::string ShardNameOf(const OutputSet& set, uint64_t shard);

/// `set` must outlive the writer. Errors: as open(2).
Result<std::unique_ptr<ShardWriter>> OpenShardWriter(const OutputSet& set, uint64_t shard);

/// What must be unique in a set of this form for every image to be found again.
std::string UniqueNameOf(const OutputSet& set, std::string_view name, int32_t label);

// One for each form; OpenShardWriter() chooses.
Result<std::unique_ptr<ShardWriter>> OpenWebDatasetWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenTfRecordWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenRecordIoWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenFolderWriter(const OutputSet& set, const std::string& shard);

}  // namespace imgd::data
