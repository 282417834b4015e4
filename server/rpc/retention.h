#pragma once

#include "common/checkpoint/prune.h"
#include "imgd/v1/admin.pb.h"
#include "server/store/reader.h"

namespace imgd {

/// How long what jobs leave is kept after their end (zero: for ever), and how much of it (0: any).
struct RetentionRules {
  Duration logs_kept_for{};
  Duration metrics_kept_for{};
  uint64_t logs_total_bytes = 0;
  uint64_t metrics_total_bytes = 0;
  uint64_t log_kept_bytes = 0;  ///< of each rank
  PruneRule checkpoints;
};

/// What there is, and what would go. May take minutes, for folders of checkpoints. Errors: those of the
/// databases.
Status FillRetention(const RetentionRules& rules, WallTime now, Reader& reader,
                     v1::ShowRetentionResponse& out);

}  // namespace imgd
