#pragma once

#include <cstdint>
#include <map>

#include "server/store/database.h"
#include "server/store/metrics_store.h"

/// How much there is of what is kept in metrics.db, for who removes it and who asks. All throw
/// SQLite::Exception.
namespace imgd {

/// Events of a job that are its figures.
inline constexpr EventKind kFigureKinds[] = {EventKind::kStep, EventKind::kEpoch, EventKind::kClasses,
                                             EventKind::kSamples};

/// As MetricsStore::LogSizes().
std::map<JobId, uint64_t> LogSizesOf(Database& database, uint64_t segment_bytes);
/// About how many bytes the job's figures are; 0: it has none.
uint64_t FigureBytesOf(Database& database, JobId job);
/// As MetricsStore::UsedBytes().
uint64_t UsedBytesOf(Database& database);

}  // namespace imgd
