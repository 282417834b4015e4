#include "server/rpc/log_page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "server/rpc/errors.h"
#include "server/rpc/log_places.h"
#include "server/store/log_reader.h"
#include "server/store/log_search.h"

namespace imgd {
namespace {

constexpr uint32_t kUsualTail = 1000;
constexpr uint32_t kMostTail = 10'000;
constexpr size_t kMostSearched = 1000;
constexpr size_t kMostBytesOfPage = size_t{4} << 20;
constexpr size_t kBytesOfReading = 256 << 10;
/// Of the files, for one answer: what lies before it is for the next one.
constexpr uint64_t kMostBytesBack = uint64_t{4} << 30;
constexpr uint64_t kMostBytesOn = uint64_t{64} << 20;
constexpr uint64_t kNoLine = std::numeric_limits<uint64_t>::max();

Status CheckPage(const v1::ListLogsRequest& request) {
  if (request.tail() > kMostTail) {
    return Fail(ErrorCode::kInvalidArgument, "tail: found {}; at most {} is allowed", request.tail(),
                kMostTail);
  }
  if (request.contains().size() > kMostSearched) {
    return Fail(ErrorCode::kInvalidArgument, "contains: found {} bytes; at most {} are allowed",
                request.contains().size(), kMostSearched);
  }
  if (request.has_after_line() && !request.has_rank())
    return Fail(ErrorCode::kInvalidArgument, "after_line: lines are counted by rank; rank is missing");
  if (request.has_before_line() && !request.has_rank())
    return Fail(ErrorCode::kInvalidArgument, "before_line: lines are counted by rank; rank is missing");
  const int places = (request.has_after_line() ? 1 : 0) + (request.has_before_line() ? 1 : 0) +
                     (request.after().empty() ? 0 : 1) + (request.before().empty() ? 0 : 1);
  if (places > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "after, before, after_line, before_line: at most one of them is allowed");
  }
  return {};
}

/// One answer in the making.
class LogPage {
 public:
  LogPage(const v1::ListLogsRequest& request, const std::filesystem::path& folder, Reader& reader,
          v1::ListLogsResponse& out)
      : request_(request),
        folder_(folder),
        reader_(reader),
        out_(out),
        job_(request.id()),
        filter_(request.contains(), static_cast<LogLevel>(std::clamp<int>(
                                        request.level(), v1::LOG_LEVEL_DEBUG, v1::LOG_LEVEL_ERROR))),
        most_lines_(request.tail() == 0 ? kUsualTail : request.tail()) {}

  Status Fill();

 private:
  Result<Generation> FirstStart(const JobRecord& job) const;
  Result<std::map<uint32_t, LogPosition>> Positions(Generation generation);
  Status FillBackwards(Generation generation);
  Status FillForwards(Generation first, Generation last);
  Result<bool> AddStart(Generation generation);
  Result<bool> AddRankForwards(const LogStream& stream, const LogPosition& stored, size_t bytes,
                               uint64_t read);

  const v1::ListLogsRequest& request_;
  const std::filesystem::path& folder_;
  Reader& reader_;
  v1::ListLogsResponse& out_;
  JobId job_;
  LineFilter filter_;
  uint64_t most_lines_;
  LogPlaces from_;  ///< where `after` or `before` is
  LogPlaces next_;
};

Result<Generation> LogPage::FirstStart(const JobRecord& job) const {
  const bool given = request_.has_generation();
  const Generation wanted = given ? Generation(request_.generation()) : job.generation;
  const Generation first = from_.generation.value() > 0 ? from_.generation : wanted;
  if (std::max(first, wanted) > job.generation) {
    return Fail(ErrorCode::kNotFound, "job {} has no start {}; its latest is {}", job_,
                std::max(first, wanted), job.generation);
  }
  if (given && first != wanted) {
    return Fail(ErrorCode::kInvalidArgument, "generation: found {}; the place is one of start {}", wanted,
                first);
  }
  return first;
}

Result<std::map<uint32_t, LogPosition>> LogPage::Positions(Generation generation) {
  IMGD_ASSIGN(auto positions, reader_.LogPositions({job_, generation}));
  if (request_.has_rank())
    std::erase_if(positions, [this](const auto& item) { return item.first != request_.rank(); });
  return positions;
}

Status LogPage::Fill() {
  IMGD_TRY(CheckPage(request_));
  IMGD_ASSIGN(const auto row, reader_.Job(job_, false));
  if (!row) return tl::unexpected(NoJob(job_));
  const uint32_t ranks = row->job.MostNodes() * row->job.RanksOnNode();
  if (request_.has_rank() && request_.rank() >= ranks) {
    return Fail(ErrorCode::kInvalidArgument, "job {} has no rank {}; 0 to {} are allowed", job_,
                request_.rank(), ranks - 1);
  }
  if (!request_.after().empty()) {
    IMGD_ASSIGN(from_, DecodePlaces("after", request_.after()));
  } else if (!request_.before().empty()) {
    IMGD_ASSIGN(from_, DecodePlaces("before", request_.before()));
  } else if (request_.has_after_line()) {
    from_.lines[request_.rank()] = request_.after_line();
  } else if (request_.has_before_line()) {
    from_.lines[request_.rank()] = request_.before_line();
  }
  IMGD_ASSIGN(const Generation first, FirstStart(row->job));
  const bool forwards = !request_.after().empty() || request_.has_after_line();
  const bool later = !request_.after().empty() && !request_.has_generation();
  IMGD_TRY(forwards ? FillForwards(first, later ? row->job.generation : first) : FillBackwards(first));
  SortByTime(*out_.mutable_lines());
  out_.set_generation(next_.generation.value());
  out_.set_next(EncodePlaces(next_));
  return {};
}

Status LogPage::FillBackwards(Generation generation) {
  IMGD_ASSIGN(const auto positions, Positions(generation));
  next_.generation = generation;
  LogPlaces previous{.generation = generation};
  const bool placed = !request_.before().empty() || request_.has_before_line();
  for (const auto& [rank, position] : positions) {
    const auto from = from_.lines.find(rank);
    const bool any = !placed || from != from_.lines.end();
    const uint64_t before = from != from_.lines.end() ? from->second : kNoLine;
    next_.lines[rank] =
        placed ? std::min(std::max<uint64_t>(before, 1) - 1, position.last_line) : position.last_line;
    if (!any || before <= 1) continue;  // nothing of this rank is before the place
    const LogLimits limits{.lines = most_lines_,
                           .text_bytes = kMostBytesOfPage / positions.size(),
                           .read_bytes = kMostBytesBack / positions.size()};
    const LogStream stream{{job_, generation}, rank};
    IMGD_ASSIGN(const auto found, FindBackwards(folder_, stream, position, before, filter_, limits));
    for (const auto& line : found.lines) *out_.add_lines() = ToProto(line, rank, generation);
    if (found.too_many_bytes) out_.set_truncated(true);
    if (found.previous > 1) previous.lines[rank] = found.previous;
  }
  if (!previous.lines.empty()) out_.set_previous(EncodePlaces(previous));
  return {};
}

Status LogPage::FillForwards(Generation first, Generation last) {
  next_ = {.generation = first, .lines = from_.lines};
  while (true) {
    IMGD_ASSIGN(const bool all, AddStart(next_.generation));
    if (!all || static_cast<uint64_t>(out_.lines_size()) >= most_lines_) return {};
    IMGD_ASSIGN(const auto later, reader_.NextStartWithLog(job_, next_.generation));
    if (!later || *later > last) return {};
    next_ = {.generation = *later};
  }
}

/// False where there would have been more.
Result<bool> LogPage::AddStart(Generation generation) {
  IMGD_ASSIGN(const auto positions, Positions(generation));
  bool all = true;
  for (const auto& [rank, position] : positions) {
    IMGD_ASSIGN(const bool all_of_rank,
                AddRankForwards({{job_, generation}, rank}, position, kMostBytesOfPage / positions.size(),
                                kMostBytesOn / positions.size()));
    all = all && all_of_rank;
  }
  if (!all) out_.set_truncated(true);
  return all;
}

/// Likewise. The last lines of a log that was restored without its file are not there: the place stays before
/// them, so that the first line after them says so.
Result<bool> LogPage::AddRankForwards(const LogStream& stream, const LogPosition& stored, size_t bytes,
                                      uint64_t read) {
  uint64_t& place = next_.lines[stream.rank];
  if (place >= stored.last_line) return true;
  IMGD_ASSIGN(LogCursor cursor, CursorAfter(folder_, stream, stored, place));
  uint64_t lines = 0;
  size_t taken = 0;
  for (uint64_t done = 0; done < read; done += kBytesOfReading) {
    IMGD_ASSIGN(const auto found, ReadLines(folder_, stream, stored, cursor, kBytesOfReading));
    if (found.empty()) return true;
    for (const auto& line : found) {
      if (filter_.Takes(line)) {
        taken += line.text.size();
        if (lines == most_lines_ || (lines > 0 && taken > bytes)) return false;
        *out_.add_lines() = ToProto(line, stream.rank, stream.run.generation);
        ++lines;
      }
      place = line.number;
    }
  }
  return place >= stored.last_line;
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

void SortByTime(google::protobuf::RepeatedPtrField<v1::LogLine>& lines) {
  struct Placed {
    uint64_t generation;
    int64_t time_us;
    v1::LogLine line;
  };
  std::vector<Placed> placed;
  placed.reserve(static_cast<size_t>(lines.size()));
  std::map<std::pair<uint64_t, uint32_t>, int64_t> newest;  // time so far, by start and rank
  for (auto& line : lines) {
    int64_t& time_us = newest.try_emplace({line.generation(), line.rank()}, line.time_us()).first->second;
    time_us = std::max<int64_t>(time_us, line.time_us());
    placed.push_back({line.generation(), time_us, std::move(line)});
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.generation, a.time_us) < std::tie(b.generation, b.time_us);
  });
  auto to = lines.begin();
  for (auto& item : placed) *to++ = std::move(item.line);
}

bool IsSearch(const v1::ListLogsRequest& request) {
  return !request.contains().empty() || request.level() > v1::LOG_LEVEL_DEBUG;
}

Status FillLogPage(const v1::ListLogsRequest& request, const std::filesystem::path& folder, Reader& reader,
                   v1::ListLogsResponse& out) {
  return LogPage(request, folder, reader, out).Fill();
}

}  // namespace imgd
