#include "server/store/sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "server/store/sql.h"

namespace imgd {
namespace {

uint64_t NumberOf(SQLite::Statement& query) {
  query.executeStep();
  const uint64_t number = Unsigned(query.getColumn(0));
  query.reset();
  return number;
}

}  // namespace

std::map<JobId, uint64_t> LogSizesOf(Database& database, uint64_t segment_bytes) {
  // The file before the one that is written is full, and those before it are gone (log_store.h).
  auto& query = database.Prepare(
      "SELECT job, sum(segment_bytes + CASE WHEN segment > 0 THEN ? ELSE 0 END) FROM log_streams GROUP BY "
      "job");
  query.bind(1, Signed(segment_bytes));
  std::map<JobId, uint64_t> out;
  while (query.executeStep()) out[JobId(Unsigned(query.getColumn(0)))] = Unsigned(query.getColumn(1));
  query.reset();
  return out;
}

uint64_t FigureBytesOf(Database& database, JobId job) {
  std::vector<int> kinds;
  for (const EventKind kind : kFigureKinds) kinds.push_back(static_cast<int>(kind));
  auto& query = database.Prepare(fmt::format(
      "SELECT (SELECT coalesce(sum(length(payload)), 0) FROM events WHERE job = ?1 AND kind IN ({})) + "
      "(SELECT coalesce(sum(length(data)), 0) FROM history WHERE job = ?1) + "
      "(SELECT coalesce(sum(length(data)), 0) FROM rank_times WHERE job = ?1)",
      fmt::join(kinds, ", ")));
  query.bind(1, Signed(job.value()));
  return NumberOf(query);
}

uint64_t UsedBytesOf(Database& database) {
  const uint64_t pages = NumberOf(database.Prepare("PRAGMA page_count"));
  const uint64_t free = NumberOf(database.Prepare("PRAGMA freelist_count"));
  return (pages - free) * NumberOf(database.Prepare("PRAGMA page_size"));
}

}  // namespace imgd
