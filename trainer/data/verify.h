#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::data {

struct VerifyOptions {
  bool decode = false;          ///< decode every image
  int jobs = 1;                 ///< threads
  uint64_t classes = 0;         ///< how many there must be; 0: any number
  size_t most_findings = 1000;  ///< how many are kept; all are counted
};

/// Something that is broken.
struct VerifyFinding {
  std::string place;   ///< a shard, an image and where it lies, a class
  std::string reason;  ///< what is wrong with it, in words
};

/// What verification saw.
struct VerifyReport {
  uint64_t images = 0;
  uint64_t decoded = 0;                ///< of them, whether they were good or not
  std::vector<std::string> classes;    ///< names by label
  std::vector<uint64_t> class_images;  ///< how many of each
  uint64_t shards = 0;
  uint64_t shard_bytes = 0;
  uint64_t checksums = 0;               ///< shards whose checksum in shards.json was compared
  uint64_t indexes = 0;                 ///< index files that were compared with their shards
  uint64_t records = 0;                 ///< of TFRecord, whose content's checksum was compared
  uint64_t broken = 0;                  ///< findings in all
  std::vector<VerifyFinding> findings;  ///< the first of them, shards first, images in the set's order
  uint64_t doubtful = 0;                ///< images that decode as they were coded, but not without a warning
  std::vector<VerifyFinding> warnings;  ///< the first of them, in the set's order
  std::vector<std::string> notes;       ///< what is worth saying, but is not broken: one sentence each

  /// A reason that begins by naming the place, as errors do, does so no longer.
  void Add(std::string place, std::string reason, size_t most);
};

enum class VerifyPhase {
  kShards,  ///< bytes of shards are read
  kImages,  ///< images are decoded
};

/// Told from any thread, one call at a time, how many of the phase's bytes or images are done; false stops
/// it.
using VerifyProgress = std::function<bool(VerifyPhase phase, uint64_t done, uint64_t total)>;

/// Reads a data set of any form (OpenDataset) and says what is wrong with it. Of shards: those that
/// shards.json names and that are missing, those in the folder that it does not name, gaps in their numbers;
/// their bytes against shards.json's checksums; their form from end to end, with the checksums of TFRecord's
/// records; their index files against the shards themselves. Of all sets: two images of one name, images that
/// can't be decoded, or only with damage (where asked for), a number of classes other than asked for. Whether
/// it is ImageNet-1k, or what differs from it, is a note; so is what readers pass over, and a tar that ends
/// without the mark of its end. Errors: kNotFound and kInvalidArgument when there
/// is no data set; kCancelled when `progress` stopped it. What is broken is no error but in the report.
Result<VerifyReport> VerifyDataset(const std::string& where, const VerifyOptions& options,
                                   const VerifyProgress& progress = {});

/// What there is to say of a set that is ImageNet-1k, whole or not: sentences; none for other sets. `images`:
/// how many each class has.
std::vector<std::string> CompareToImageNet(const std::vector<std::string>& classes,
                                           const std::vector<uint64_t>& images);

}  // namespace imgd::data
