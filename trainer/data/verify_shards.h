#pragma once

#include <string>

#include "trainer/data/shard_list.h"
#include "trainer/data/verify.h"

namespace imgd::data {

/// The part of VerifyDataset() that looks at the shards one by one, `options.jobs` at a time. Errors:
/// kCancelled.
Status VerifyShards(const std::string& where, const ShardList& listing, const SourceOpener& opener,
                    const VerifyOptions& options, const VerifyProgress& progress, VerifyReport& report);

}  // namespace imgd::data
