#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/image_facts.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {

/// One image of a shard, as people look at it.
struct ShardEntry {
  std::string key;
  std::optional<int32_t> label;  ///< as in the file; none in a tar that does not say
  std::string class_name;        ///< empty where nothing says it
  uint64_t offset = 0;           ///< in the shard
  uint64_t bytes = 0;
  std::optional<ImageFacts> facts;  ///< none where the shard itself can't be read
};

/// What one file of a data set holds.
struct ShardLook {
  std::string form;     ///< "WebDataset", "tar of class tars", "tar", "RecordIO", "TFRecord", "index"
  uint64_t bytes = 0;   ///< of the file
  uint64_t images = 0;  ///< in all; for a plain tar, files
  std::vector<ShardEntry> entries;  ///< the first of them
  std::string note;                 ///< why it is taken for less than its name says; may be empty
};

/// Looks into a shard, or into the index of one (.idx). Of at most `most` images the files are read for their
/// sizes in pixels; classes have the names that the shard gives them, or shards.json beside it. Errors: those
/// of ScanShard and DecodeShardIndex; a tar that has no labels is listed as what it is.
Result<ShardLook> LookIntoShard(const std::string& path, uint64_t most);

/// A set's shards.json, here or far away. Errors: kNotFound; those of SetDescription::Parse.
Result<SetDescription> LookIntoDescription(const std::string& path);

}  // namespace imgd::data
