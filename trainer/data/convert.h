#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

struct ConvertOptions {
  std::string name = "train";                  ///< of the set: shards are "<name>-000000.tar" and so on
  uint64_t shards = 0;                         ///< how many; 0: as many as shard_bytes asks for
  uint64_t shard_bytes = uint64_t{256} << 20;  ///< about how large one is, where `shards` is 0
  uint64_t seed = 0;                           ///< of the order in which images are put into the shards
  int jobs = 1;                                ///< threads, each with a shard of its own
};

struct ConvertResult {
  uint64_t shards = 0;
  uint64_t kept = 0;  ///< of them, that an interrupted run before had finished
  uint64_t images = 0;
  uint64_t bytes = 0;  ///< of all shards
};

/// Told from any thread, one call at a time, how many of the images are written; false stops the conversion.
using ConvertProgress = std::function<bool(uint64_t done, uint64_t total)>;

/// Writes a data set as WebDataset tar shards into the folder `out`, the files of the images as they are, in
/// an order shuffled by the seed, so that each shard is a sample of the whole. Beside each shard its index;
/// last of all shards.json (docs/formats.md). The same set and options give the same bytes, whatever `jobs`
/// is. A run that was interrupted goes on where it stopped when it is started again with the same set and
/// options. Errors: kCancelled when `progress` stopped it; kInvalidArgument for options out of range, for two
/// images of one name, and for an `out` that holds something else; those of the set and of the file system.
Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress = {});

}  // namespace imgd::data
