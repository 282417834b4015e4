#pragma once

#include <algorithm>
#include <vector>

#include "server/store/history.h"

namespace imgd {

/// A value, or what some values that follow each other are together.
struct HistoryEntry {
  Summary values;
  uint64_t count = 1;
};

/// Reads one column of one start of a job. All throw SQLite::Exception. Errors: kDataLoss.
class HistoryColumn {
 public:
  /// `values`: how many are sealed. The database must outlive it.
  HistoryColumn(Database& database, JobId job, Generation generation, Figure figure, uint64_t values)
      : database_(&database), job_(job), generation_(generation), figure_(figure), values_(values) {}

  Figure figure() const { return figure_; }

  /// Values [begin, end) as entries of at most 8^level of them.
  Status Read(uint64_t begin, uint64_t end, int level, std::vector<HistoryEntry>& out);

  /// The number of the first value that is above `x`, or at least `x`; of a column that grows.
  Result<uint64_t> Find(double x, bool above);

  /// Calls `take(double)` for each of the values [begin, end). The piece that was read last stays in memory.
  template <typename Take>
  Status Each(uint64_t begin, uint64_t end, Take take) {
    while (begin < end) {
      IMGD_TRY(LoadPiece(begin));
      const uint64_t last = std::min<uint64_t>(end, piece_first_ + piece_.size());
      for (; begin < last; ++begin) take(piece_[begin - piece_first_]);
    }
    return {};
  }

 private:
  SQLite::Statement& RowsFrom(int level, uint64_t first, uint64_t last);
  Result<std::vector<double>> Piece(uint64_t first);
  /// Makes piece_ the one that has this value.
  Status LoadPiece(uint64_t value);
  /// `first` and `last` are multiples of `each`, within what the level has.
  Status ReadRows(uint64_t first, uint64_t last, int level, uint64_t each, std::vector<HistoryEntry>& out);

  Database* database_;
  JobId job_;
  Generation generation_;
  Figure figure_;
  uint64_t values_;
  std::vector<double> piece_;
  uint64_t piece_first_ = 0;
};

/// The values of a figure over several starts, one after another: of each some sealed ones, then some that
/// are not.
class HistoryValues {
 public:
  /// `rest` must outlive it.
  void Add(HistoryColumn column, uint64_t begin, uint64_t end, const std::vector<StepReport>& rest) {
    parts_.push_back({std::move(column), begin, std::max(begin, end), &rest});
    size_ += parts_.back().size();
  }
  uint64_t size() const { return size_; }

  /// Calls `take(double)` for each of the values [begin, end). Throws and fails as the columns do.
  template <typename Take>
  Status Each(uint64_t begin, uint64_t end, Take take) {
    uint64_t before = 0;  // values of the parts before
    for (auto& part : parts_) {
      const uint64_t sealed = part.end - part.begin;
      const auto within = [&](uint64_t place) {
        return std::clamp(place, before, before + part.size()) - before;
      };
      const uint64_t from = within(begin);
      const uint64_t to = within(end);
      IMGD_TRY(
          part.column.Each(part.begin + std::min(from, sealed), part.begin + std::min(to, sealed), take));
      for (uint64_t i = std::max(from, sealed); i < to; ++i)
        take((*part.rest)[i - sealed].figures.at(part.column.figure()));
      before += part.size();
    }
    return {};
  }

 private:
  struct Part {
    HistoryColumn column;
    uint64_t begin = 0;
    uint64_t end = 0;
    const std::vector<StepReport>* rest;
    uint64_t size() const { return end - begin + rest->size(); }
  };
  std::vector<Part> parts_;
  uint64_t size_ = 0;
};

}  // namespace imgd
