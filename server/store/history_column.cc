#include "server/store/history_column.h"

#include <cmath>
#include <limits>

#include "server/store/history_codec.h"
#include "server/store/sql.h"

namespace imgd {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Result<std::vector<double>> Decode(const SQLite::Column& data, size_t count) {
  return DecodeColumn({static_cast<const char*>(data.getBlob()), static_cast<size_t>(data.getBytes())},
                      count);
}

void AddUnknown(uint64_t from, uint64_t to, uint64_t each, std::vector<HistoryEntry>& out) {
  for (; from < to; from += each) out.push_back({{kNaN, kNaN, kNaN}, each});
}

}  // namespace

Status HistoryColumn::Read(uint64_t begin, uint64_t end, int level, std::vector<HistoryEntry>& out) {
  if (begin >= end) return {};
  uint64_t each = 1;
  for (int i = 0; i < level; ++i) each *= kFanOut;
  const uint64_t row_values = each * kPieceValues;
  // Of a level above 0 there are full rows only.
  const uint64_t complete = level == 0 ? values_ : values_ / row_values * row_values;
  const uint64_t first = (begin + each - 1) / each * each;
  const uint64_t last = std::min(end, complete) / each * each;
  if (first >= last) return level == 0 ? Status() : Read(begin, end, level - 1, out);
  IMGD_TRY(Read(begin, first, level - 1, out));
  IMGD_TRY(ReadRows(first, last, level, each, out));
  return last < end ? Read(last, end, level - 1, out) : Status();
}

Result<uint64_t> HistoryColumn::Find(double x, bool above) {
  if (std::isinf(x)) return x < 0 ? 0 : values_;
  const auto before = [&](double value) { return above ? value <= x : value < x; };
  uint64_t low = 0;
  uint64_t high = (values_ + kPieceValues - 1) / kPieceValues;
  // The last piece whose first value is before it has the place.
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    IMGD_ASSIGN(const auto piece, Piece(middle * kPieceValues));
    if (before(piece.front())) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return uint64_t{0};
  IMGD_ASSIGN(const auto piece, Piece((low - 1) * kPieceValues));
  const auto place = std::find_if_not(piece.begin(), piece.end(), before);
  return (low - 1) * kPieceValues + static_cast<uint64_t>(place - piece.begin());
}

SQLite::Statement& HistoryColumn::RowsFrom(int level, uint64_t first, uint64_t last) {
  auto& query = database_->Prepare(
      "SELECT first, data FROM history WHERE job = ? AND generation = ? AND figure = ? AND level = ? AND "
      "first >= ? AND first < ? ORDER BY first");
  BindAll(query, 1, Signed(job_.value()), Signed(generation_.value()), static_cast<int>(figure_), level,
          Signed(first), Signed(last));
  return query;
}

Result<std::vector<double>> HistoryColumn::Piece(uint64_t first) {
  auto& query = RowsFrom(0, first, first + 1);
  const size_t count = std::min<uint64_t>(kPieceValues, values_ - first);
  if (!query.executeStep()) {
    if (MayLack(figure_)) return std::vector<double>(count, kNaN);
    return Fail(ErrorCode::kDataLoss, "metrics.db: a piece of job {} lacks", job_);
  }
  auto values = Decode(query.getColumn(1), count);
  query.reset();
  return values;
}

Status HistoryColumn::LoadPiece(uint64_t value) {
  const uint64_t first = value / kPieceValues * kPieceValues;
  if (!piece_.empty() && piece_first_ == first) return {};
  IMGD_ASSIGN(piece_, Piece(first));
  piece_first_ = first;
  return {};
}

Status HistoryColumn::ReadRows(uint64_t first, uint64_t last, int level, uint64_t each,
                               std::vector<HistoryEntry>& out) {
  const uint64_t row_values = each * kPieceValues;
  uint64_t next = first / row_values * row_values;
  auto& query = RowsFrom(level, next, last);
  while (query.executeStep()) {
    const uint64_t row = Unsigned(query.getColumn(0));
    const size_t entries = level == 0 ? std::min<uint64_t>(kPieceValues, values_ - row) : kPieceValues;
    IMGD_ASSIGN(const auto data, Decode(query.getColumn(1), level == 0 ? entries : 3 * entries));
    if (MayLack(figure_) && row > next) {
      AddUnknown(std::max(first, next), row, each, out);
      next = row;
    }
    const auto at = [&](uint64_t value) { return (value - row) / each; };
    for (size_t i = row < first ? at(first) : 0; i < std::min<size_t>(entries, at(last)); ++i) {
      const bool plain = level == 0;
      out.push_back({{data[i], data[plain ? i : entries + i], data[plain ? i : 2 * entries + i]}, each});
    }
    if (row != next) break;
    next += row_values;
  }
  query.reset();
  if (MayLack(figure_)) {
    AddUnknown(std::max(first, next), last, each, out);
    return {};
  }
  if (next < last) return Fail(ErrorCode::kDataLoss, "metrics.db: a piece of job {} lacks", job_);
  return {};
}

}  // namespace imgd
