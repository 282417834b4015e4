#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/data/convert_report.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {

/// Told of every stretch that was read: bytes, and images of shards that are done; false stops the check.
/// From any thread.
using CheckProgress = std::function<bool(uint64_t images, uint64_t bytes)>;

/// Reads all shards of the set from front to back and compares the checksums that there are: those of each
/// record of TFRecord files, and those of whole files in shards.json. Returns the places where one is wrong,
/// in the order of the shards. Errors: kCancelled when `progress` stopped it; those of the sources.
Result<ConvertReport::Entry> CheckChecksums(const ShardSet& set, int jobs, const CheckProgress& progress);

/// Whether there is anything to compare.
bool HasChecksums(const ShardSet& set);

}  // namespace imgd::data
