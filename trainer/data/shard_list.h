#pragma once

#include <memory>
#include <mutex>
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
  bool found = false;  ///< by listing a folder, so that one that is missing is missed by nobody
};

/// Errors: kNotFound; kInvalidArgument, also for shards of several sets or forms, and for a local folder that
/// holds class folders as well; those of the server.
Result<ShardList> ListShards(const std::string& where, const SourceOpener& opener);

/// Reads the indexes that lie beside shards, for several threads at once.
class IndexReader {
 public:
  explicit IndexReader(const SourceOpener& opener) : opener_(opener) {}

  /// The index beside the shard that was opened from `where`. Nothing where there is none, and for a URL with
  /// a query, which opens one file only. Errors: kDataLoss naming the index, for one that is damaged, of a
  /// shard of another size, or larger than the shard can need.
  Result<std::optional<ShardIndex>> Read(const Source& shard, const std::string& where);

  /// RecordIO's own .rec has an index of another kind beside it, named without the .rec.
  static std::string PathOf(const std::string& where);

 private:
  Result<std::optional<std::string>> ReadBytes(const Source& shard, const std::string& path);

  const SourceOpener& opener_;
  std::mutex large_;  ///< held while an index is read that takes much memory
};

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
