#pragma once

#include <optional>
#include <string>

#include "trainer/data/shard_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// Keeps the indexes that were made by reading shards, so that a set which can't be written to is scanned
/// once. Not of a server that says neither an ETag nor a time of change: a new file of the same size would be
/// taken for the old one. One file for each shard, named by its name, size and version; replaced as a whole,
/// so several processes may share it.
class IndexCache {
 public:
  /// `folder` is made when needed; empty: nothing is kept.
  explicit IndexCache(std::string folder) : folder_(std::move(folder)) {}

  /// The index of this very shard; nothing where there is none or it is damaged.
  std::optional<ShardIndex> Find(const Source& shard) const;
  /// Best effort: where it can't be written, the next run scans again.
  void Keep(const Source& shard, const ShardIndex& index) const;

 private:
  std::string PathOf(const Source& shard) const;
  std::string folder_;
};

}  // namespace imgd::data
