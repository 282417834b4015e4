#include <algorithm>

#include "server/rpc/errors.h"
#include "server/rpc/log_page.h"
#include "server/rpc/streams.h"

namespace imgd {
namespace {

constexpr size_t kMostBytesOfRank = 256 << 10;
constexpr size_t kMostBytesOfStep = 1 << 20;
/// An agent sends the last lines within this time after it said that the ranks are gone.
constexpr auto kQuiet = std::chrono::seconds(2);
constexpr auto kLongestWait = std::chrono::seconds(10);

}  // namespace

LogStreamReader* LogStreamReader::Start(const v1::ReadLogsRequest& request, const std::string& attached_by,
                                        Engine* engine, ReadPool* pool, const Clock* clock) {
  auto* stream =
      new LogStreamReader(request, attached_by, engine, pool, clock);  // deleted by gRPC through OnDone()
  stream->Pump();
  return stream;
}

LogStreamReader::LogStreamReader(const v1::ReadLogsRequest& request, std::string attached_by, Engine* engine,
                                 ReadPool* pool, const Clock* clock)
    : PumpedStream(pool, &engine->logs(), JobId(request.id())),
      engine_(engine),
      clock_(clock),
      request_(request),
      attached_by_(std::move(attached_by)) {
  if (request_.generation() == 0) request_.clear_generation();  // as good as absent
}

PumpedStream<v1::ReadLogsResponse>::Step LogStreamReader::Read(Reader& reader,
                                                               std::vector<v1::ReadLogsResponse>& out) {
  auto step = ReadStep(reader, out);
  if (!step) return {.what = Step::kEnd, .status = ToStatus(step.error())};
  return *step;
}

Result<PumpedStream<v1::ReadLogsResponse>::Step> LogStreamReader::ReadStep(
    Reader& reader, std::vector<v1::ReadLogsResponse>& out) {
  const uint64_t seen = engine_->logs().Version(job());
  IMGD_ASSIGN(const auto row, reader.Job(job(), false));
  if (!row) return tl::unexpected(NoJob(job()));
  if (!generation_)
    generation_ = request_.has_generation() ? Generation(request_.generation()) : row->job.generation;
  if (*generation_ > row->job.generation && !request_.follow()) {
    return Fail(ErrorCode::kNotFound, "job {} has no start {}; its latest is {}", job(), *generation_,
                row->job.generation);
  }
  const uint32_t most = row->job.MostNodes() * row->job.RanksOnNode();
  if (request_.has_rank() && request_.rank() >= most) {
    return Fail(ErrorCode::kInvalidArgument, "job {} has no rank {}; 0 to {} are allowed", job(),
                request_.rank(), most - 1);
  }
  if (!attached_by_.empty()) NoteAttached();
  v1::ReadLogsResponse response;
  IMGD_ASSIGN(const bool more, ReadRanks(reader, response));
  const bool news = response.lines_size() > 0;
  if (news) {
    SortByTime(*response.mutable_lines());
    out.push_back(std::move(response));
  }
  if (more) return Step{.what = Step::kMore};
  if (!request_.follow()) return Step{.what = Step::kEnd};
  if (request_.has_generation()) return AtEnd(row->job, seen, news);
  IMGD_ASSIGN(const auto next, reader.NextStartWithLog(job(), *generation_));
  if (!next) return AtEnd(row->job, seen, news);
  if (!news) {
    // The job has started again; nothing of the old start was left.
    generation_ = next;
    cursors_.clear();
    request_.set_tail(0);
  }
  return Step{.what = Step::kMore};
}

Result<bool> LogStreamReader::ReadRanks(Reader& reader, v1::ReadLogsResponse& out) {
  const RunKey run{job(), *generation_};
  IMGD_ASSIGN(auto positions, reader.LogPositions(run));
  if (request_.has_rank())
    std::erase_if(positions, [this](const auto& item) { return item.first != request_.rank(); });
  std::vector<uint32_t> ranks;
  for (const auto& [rank, position] : positions) ranks.push_back(rank);
  std::rotate(ranks.begin(), std::lower_bound(ranks.begin(), ranks.end(), next_rank_), ranks.end());
  size_t bytes = 0;
  bool more = false;
  for (const uint32_t rank : ranks) {
    const LogStream stream{run, rank};
    const auto& stored = positions.at(rank);
    if (!cursors_.contains(rank)) {
      IMGD_ASSIGN(cursors_[rank], TailCursor(engine_->log_folder(), stream, stored, request_.tail()));
    }
    LogCursor& cursor = cursors_[rank];
    if (bytes < kMostBytesOfStep) {
      IMGD_ASSIGN(const auto read,
                  ReadLines(engine_->log_folder(), stream, stored, cursor, kMostBytesOfRank));
      for (const auto& line : read) {
        bytes += line.text.size();
        *out.add_lines() = ToProto(line, rank, run.generation);
      }
      if (!read.empty()) more = more || cursor.last_line < stored.last_line;
      next_rank_ = rank + 1;
    } else {
      more = more || cursor.last_line < stored.last_line;
    }
  }
  return more;
}

void LogStreamReader::NoteAttached() {
  const std::string rank = request_.has_rank() ? fmt::format("rank {} of ", request_.rank()) : "";
  engine_->Note(
      {.job = job(),
       .node = NodeId(),
       .reason = {ReasonCode::kAttached, fmt::format("{} attaches to {}job {}", attached_by_, rank, job())},
       .actor = fmt::format("user:{}", attached_by_),
       .time = {}},
      [](const Status&) {});
  attached_by_.clear();
}

PumpedStream<v1::ReadLogsResponse>::Step LogStreamReader::AtEnd(const JobRecord& job, uint64_t seen,
                                                                bool news) {
  const Instant now = clock_->Now();
  const bool old_start = request_.has_generation() && job.generation > *generation_;
  if (!IsFinal(job.state) && !old_start)
    return {.what = Step::kWait, .seen = seen, .deadline = now + kLookAgain};
  const auto since_end = std::chrono::microseconds(clock_->Wall().micros - job.ended.micros);
  if (news || quiet_since_ == Instant{}) quiet_since_ = now;
  if ((IsFinal(job.state) && since_end >= kLongestWait) || now - quiet_since_ >= kQuiet)
    return {.what = Step::kEnd};
  return {.what = Step::kWait, .seen = seen, .deadline = quiet_since_ + kQuiet};
}

}  // namespace imgd
