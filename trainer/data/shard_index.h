#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/data/restart_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// One image of a shard: where the bytes of its file lie, and what it shows.
struct IndexedImage {
  std::string key;      ///< its name without ending, unique in the data set: "n01440764/n01440764_10026"
  uint64_t offset = 0;  ///< in the shard
  uint32_t size = 0;    ///< bytes of the image's file
  int32_t label = 0;    ///< rank of its class, from 0
  /// RecordIO only: where not 0, the record lies in parts, `offset` is that of the first, and the image
  /// begins after so many bytes of what they are put together.
  uint32_t skip = 0;
  uint32_t width = 0;    ///< pixels, as the file's header says; 0: nobody has looked
  uint32_t height = 0;   ///< likewise
  std::string restarts;  ///< RestartIndex of a JPEG file that has one; else empty
  bool operator==(const IndexedImage&) const = default;
};

/// What the scan of a tar passed over, or found missing.
struct ScanNotes {
  uint64_t unread = 0;       ///< images in forms that are not read, such as .webp
  std::string first_unread;  ///< the first of them
  uint64_t hidden = 0;       ///< files whose names begin with a dot, such as the ._* of macOS
  bool has_end = true;       ///< TarReader::has_end(), also of tars in it
  bool operator==(const ScanNotes&) const = default;
};

/// The notes on all shards of a set.
class SetNotes {
 public:
  void Add(const std::string& shard, const ScanNotes& notes);
  /// A sentence for each kind of which there was something.
  std::vector<std::string> Lines() const;

 private:
  ScanNotes total_;
  uint64_t without_end_ = 0;
  std::string first_without_end_;
};

/// What lies where in one shard, so that any image can be read by itself. Stored beside the shard as
/// "<shard>.idx" (docs/formats.md), or made by reading the shard's headers.
struct ShardIndex {
  uint64_t shard_bytes = 0;                    ///< of the shard that it was made from
  std::vector<IndexedImage> images;            ///< by offset
  std::map<int32_t, std::string> class_names;  ///< by label, where the shard itself names them; not stored
  std::map<int32_t, std::string> class_words;  ///< likewise: what TFRecords call them in image/class/text
  /// The shard names the classes of its images and does not number them: labels are only ranks among
  /// class_names, and those of the set come from the names of all its shards; not stored.
  bool labels_by_name = false;
  ScanNotes notes;  ///< not stored
  bool operator==(const ShardIndex&) const = default;
};

/// The sentence on images in forms that are not read.
std::string UnreadImagesNote(uint64_t count, const std::string& first);

std::string EncodeShardIndex(const ShardIndex& index);

/// Reads the present format and the one before. Errors: kDataLoss naming `name` when the bytes are no index,
/// are cut short, fail their checksum or point out of the shard or of an image.
Result<ShardIndex> DecodeShardIndex(const std::string& bytes, const std::string& name);

/// Whether the text is a WordNet id such as "n01440764", by which ImageNet names its classes.
bool IsWnid(std::string_view text);

enum class ShardForm { kTar, kRecordIo, kTfRecord };

/// The form that a shard's name says: .tar, .rec, or TFRecord for all others.
ShardForm FormOf(std::string_view name);

/// Makes the index by reading the shard, in the form that its name says: .tar (of samples or of tars), .rec,
/// or TFRecord for others.
Result<ShardIndex> ScanShard(const Source& shard);

/// Whether it is a tar of tars, by its first file. Errors: those of TarReader.
Result<bool> HoldsTars(const Source& archive);

/// Makes the index of a tar of tars, one for each class, as ImageNet's ILSVRC2012_img_train.tar: the inner
/// archives' names without ending are the classes, and labels their rank in sorted order (labels_by_name).
/// Nothing is unpacked, hidden files are passed over. Errors: those of TarReader; kDataLoss for an entry that
/// is no tar.
Result<ShardIndex> ScanTarOfTars(const Source& archive);

/// Makes the index of a WebDataset shard: a tar in which files that share their name up to the first dot of
/// the last part are one sample, as webdataset takes them: hidden files are none. The image is the one that
/// ends in .jpg, .jpeg or .png, in capitals or not, the label the number in .cls (in any case) or .json's
/// "label"; or all samples name their classes by a WordNet id such as "n01440764" there or in .json's
/// "synset" or "wnid" (labels_by_name). Samples without an image are passed over. Errors: those of TarReader;
/// kDataLoss naming a sample whose label is missing or neither of them, or a shard that has both.
Result<ShardIndex> ScanWebDatasetShard(const Source& shard);

}  // namespace imgd::data
