#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/shard_index.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/sources.h"

namespace imgd::data {

/// The shards that a path, URL or pattern stands for.
struct ShardList {
  std::vector<std::string> shards;            ///< paths or URLs, in order
  std::optional<SetDescription> description;  ///< of these very shards, in this order
};

/// Errors: kNotFound, kInvalidArgument; those of the server.
Result<ShardList> ListShards(const std::string& where, const SourceOpener& opener);

/// A shard and what is in it.
struct OpenedShard {
  std::shared_ptr<Source> source;
  ShardIndex index;
};

/// Opens some of the list's shards, remote ones several at once, and reads or makes their indexes.
/// Errors: kDataLoss for shards that do not have the sizes that shards.json says; as ScanShard.
Result<std::vector<OpenedShard>> OpenShards(const ShardList& list, size_t first, size_t count,
                                            const SourceOpener& opener);

/// A path or URL as it may be printed: without password and query.
std::string Shown(const std::string& where);

}  // namespace imgd::data
