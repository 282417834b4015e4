#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/data/file_kind.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {

enum class OutputForm { kWebDataset, kTfRecord, kRecordIo, kImageFolder };

/// "webdataset" and so on.
std::string_view NameOf(OutputForm form);

/// An object in an image, edges as shares of its width and height.
struct ObjectBox {
  float xmin = 0;
  float ymin = 0;
  float xmax = 0;
  float ymax = 0;
  int32_t label = -1;  ///< of its class, from 0; -1: that of the image
};
/// The boxes of the image of a name, as Dataset::name() gives it.
using BoxesOf = std::function<std::vector<ObjectBox>(std::string_view name)>;

/// What the shards of one set share.
struct OutputSet {
  OutputForm form = OutputForm::kWebDataset;
  std::string folder;
  std::string name;
  uint64_t shards = 1;
  std::vector<std::string> classes;  ///< by label
  int32_t first_label = 1;           ///< TFRecord: what label 0 is written as
  bool index = true;                 ///< our own index beside a shard (WebDataset, RecordIO)
  BoxesOf boxes;                     ///< TFRecord; absent: no image/object/bbox
};

/// One image as it goes into a shard. All are the caller's.
struct OutputImage {
  std::string_view name;  ///< as Dataset::name() gives it, with or without an ending
  uint64_t id = 0;        ///< its number in the source
  int32_t label = 0;
  std::span<const uint8_t> file;
  FileKind facts;             ///< of `file`
  std::string_view restarts;  ///< RestartIndex of `file`; empty where it has none
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

/// `name` without the ending of an image's file; other endings stay.
std::string_view WithoutImageEnding(std::string_view name);
/// `name` itself if it has the ending of an image's file, else with ".JPEG".
std::string WithImageEnding(std::string_view name);

// One for each form; OpenShardWriter() chooses.
Result<std::unique_ptr<ShardWriter>> OpenWebDatasetWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenTfRecordWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenRecordIoWriter(const OutputSet& set, const std::string& shard);
Result<std::unique_ptr<ShardWriter>> OpenFolderWriter(const OutputSet& set, const std::string& shard);

}  // namespace imgd::data
