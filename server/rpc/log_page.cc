#include "server/rpc/log_page.h"

#include <algorithm>

#include "server/store/log_reader.h"

namespace imgd {
namespace {

constexpr uint32_t kUsualTail = 1000;
constexpr uint32_t kMostTail = 10'000;
constexpr size_t kMostBytesOfPage = size_t{4} << 20;
constexpr size_t kBytesOfReading = 256 << 10;

Status CheckPage(const v1::ListLogsRequest& request) {
  if (request.tail() > kMostTail) {
    return Fail(ErrorCode::kInvalidArgument, "tail: found {}; at most {} is allowed", request.tail(),
                kMostTail);
  }
  if (request.has_after_line() && !request.has_rank())
    return Fail(ErrorCode::kInvalidArgument, "after_line: lines are counted by rank; rank is missing");
  return {};
}

/// Which lines of a rank are wanted.
struct Wanted {
  uint64_t after = 0;
  uint64_t most = 0;
};

/// Adds a rank's lines as far as `bytes` allows; false where there would have been more.
Result<bool> AddLines(const std::filesystem::path& folder, const LogStream& stream, const LogPosition& stored,
                      Wanted wanted, size_t bytes, v1::ListLogsResponse& out) {
  if (wanted.after >= stored.last_line) return true;
  // Lines that are missing have numbers too: from there at the latest.
  IMGD_ASSIGN(LogCursor cursor, TailCursor(folder, stream, stored,
                                           wanted.after > 0 ? stored.last_line - wanted.after : wanted.most));
  uint64_t found = 0;
  while (found < wanted.most) {
    IMGD_ASSIGN(const auto lines, ReadLines(folder, stream, stored, cursor, kBytesOfReading));
    if (lines.empty()) return true;
    for (const auto& line : lines) {
      if (line.number <= wanted.after) continue;
      if (found == wanted.most) return true;
      if (line.text.size() > bytes) return false;
      bytes -= line.text.size();
      *out.add_lines() = ToProto(line, stream.rank, stream.run.generation);
      ++found;
    }
  }
  return true;
}

}  // namespace

v1::LogLine ToProto(const StoredLine& line, uint32_t rank, Generation generation) {
  v1::LogLine out;
  out.set_rank(rank);
  out.set_line_number(line.number);
  out.set_time_us(line.time_us);
  out.set_is_stderr(line.is_stderr);
  out.set_text(line.text);
  out.set_generation(generation.value());
  return out;
}

Status FillLogPage(const v1::ListLogsRequest& request, const std::filesystem::path& folder, Reader& reader,
                   v1::ListLogsResponse& out) {
  IMGD_TRY(CheckPage(request));
  const JobId job(request.id());
  IMGD_ASSIGN(const auto row, reader.Job(job, false));
  if (!row) return Fail(ErrorCode::kNotFound, "there is no job {}", job);
  const Generation generation =
      request.has_generation() ? Generation(request.generation()) : row->job.generation;
  if (generation > row->job.generation) {
    return Fail(ErrorCode::kNotFound, "job {} has no start {}; its latest is {}", job, generation,
                row->job.generation);
  }
  const uint32_t ranks = row->job.MostNodes() * row->job.RanksOnNode();
  if (request.has_rank() && request.rank() >= ranks) {
    return Fail(ErrorCode::kInvalidArgument, "job {} has no rank {}; 0 to {} are allowed", job,
                request.rank(), ranks - 1);
  }
  IMGD_ASSIGN(auto positions, reader.LogPositions({job, generation}));
  if (request.has_rank())
    std::erase_if(positions, [&](const auto& item) { return item.first != request.rank(); });
  const Wanted wanted{request.after_line(), request.tail() == 0 ? kUsualTail : request.tail()};
  for (const auto& [rank, position] : positions) {
    IMGD_ASSIGN(const bool all, AddLines(folder, {{job, generation}, rank}, position, wanted,
                                         kMostBytesOfPage / positions.size(), out));
    if (!all) out.set_truncated(true);
  }
  std::stable_sort(out.mutable_lines()->begin(), out.mutable_lines()->end(),
                   [](const v1::LogLine& a, const v1::LogLine& b) { return a.time_us() < b.time_us(); });
  out.set_generation(generation.value());
  return {};
}

}  // namespace imgd
