#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/data/convert_report.h"
#include "trainer/data/object_box.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {

/// Told of every stretch that was read: bytes, and images of shards that are done; false stops the check.
/// From any thread.
using CheckProgress = std::function<bool(uint64_t images, uint64_t bytes)>;

/// What is seen of a source by reading it once.
struct SourceFindings {
  ConvertReport::Entry wrong;  ///< places where a checksum is wrong, in the order of the shards
  /// Of the images that have any, by their numbers; TFRecord only. Labels are those of the set's classes.
  std::unordered_map<uint32_t, std::vector<ObjectBox>> boxes;
};

/// Reads all shards of the set from front to back and compares the checksums that there are: those of each
/// record of TFRecord files, and those of whole files in shards.json. Errors: kCancelled when `progress`
/// stopped it; those of the sources.
Result<SourceFindings> CheckChecksums(const ShardSet& set, int jobs, const CheckProgress& progress);

/// Whether there is anything to compare.
bool HasChecksums(const ShardSet& set);

}  // namespace imgd::data
