#include "server/store/rank_times.h"

#include <sqlite3.h>

#include <algorithm>
#include <utility>

#include "server/store/history_codec.h"
#include "server/store/sql.h"

namespace imgd {
namespace {

/// As many as a picture has columns for; of very large gangs fewer, so that a job is no more than so many
/// cells.
constexpr size_t kMostStretches = 128;
constexpr size_t kFewestStretches = 16;
constexpr size_t kMostCells = 16'384;

void AddTo(std::vector<RankCell>& into, const std::vector<RankCell>& more) {
  into.resize(std::max(into.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) {
    into[i].own_seconds += more[i].own_seconds;
    into[i].wait_seconds += more[i].wait_seconds;
    into[i].steps += more[i].steps;
  }
}

void InsertStretch(Database& database, JobId job, const RankStretch& stretch) {
  std::vector<double> values;
  for (const auto& cell : stretch.ranks) values.push_back(cell.own_seconds);
  for (const auto& cell : stretch.ranks) values.push_back(cell.wait_seconds);
  for (const auto& cell : stretch.ranks) values.push_back(cell.steps);
  const std::string data = EncodeColumn(values);
  auto& statement = database.Prepare("INSERT OR REPLACE INTO rank_times VALUES (?,?,?,?,?,?)");
  BindAll(statement, 1, Signed(job.value()), Signed(stretch.generation.value()), Signed(stretch.first_step),
          Signed(stretch.steps), Signed(stretch.ranks.size()));
  statement.bind(6, data.data(), static_cast<int>(data.size()));
  statement.exec();
  statement.reset();
}

}  // namespace

RankTimes::RankTimes(const std::vector<RankStretch>& stored) {
  for (const auto& stretch : stored) width_ = std::max(width_, stretch.steps);
  for (const auto& stretch : stored) {
    AddTo(cells_[{stretch.generation, (stretch.first_step - 1) / width_}], stretch.ranks);
    ranks_ = std::max(ranks_, stretch.ranks.size());
  }
}

size_t RankTimes::Most() const {
  return std::clamp(kMostCells / std::max<size_t>(ranks_, 1), kFewestStretches, kMostStretches);
}

void RankTimes::Add(Generation generation, uint32_t rank, uint64_t step, const RankCell& did) {
  const Place place{generation, (std::max<uint64_t>(step, 1) - 1) / width_};
  ranks_ = std::max<size_t>(ranks_, rank + 1);
  auto& cells = cells_[place];
  cells.resize(std::max<size_t>(cells.size(), rank + 1));
  cells[rank].own_seconds += did.own_seconds;
  cells[rank].wait_seconds += did.wait_seconds;
  cells[rank].steps += did.steps;
  changed_.insert(place);
  Shorten();
}

void RankTimes::Shorten() {
  while (cells_.size() > Most()) {
    all_changed_ = true;
    std::map<Place, std::vector<RankCell>> longer;
    for (const auto& [place, cells] : cells_) AddTo(longer[{place.first, place.second / 2}], cells);
    if (longer.size() == cells_.size()) {  // many starts of few steps each: the oldest goes
      cells_.erase(cells_.begin());
      continue;
    }
    width_ *= 2;
    cells_ = std::move(longer);
  }
}

RankStretch RankTimes::At(const Place& place) const {
  return {place.first, place.second * width_ + 1, width_, cells_.at(place)};
}

std::vector<RankStretch> RankTimes::Stretches() const {
  std::vector<RankStretch> out;
  for (const auto& [place, cells] : cells_) out.push_back(At(place));
  return out;
}

RankTimes::Changes RankTimes::TakeChanges() {
  Changes changes{.all = std::exchange(all_changed_, false)};
  const auto changed = std::exchange(changed_, {});
  if (changes.all) {
    changes.stretches = Stretches();
  } else {
    for (const auto& place : changed) changes.stretches.push_back(At(place));
  }
  return changes;
}

void SaveRankTimes(Database& database, JobId job, const RankTimes::Changes& changes) {
  if (changes.all) RunSql(database, "DELETE FROM rank_times WHERE job = ?", Signed(job.value()));
  for (const auto& stretch : changes.stretches) InsertStretch(database, job, stretch);
}

std::vector<RankStretch> LoadRankTimes(Database& database, JobId job) {
  auto& query = database.Prepare(
      "SELECT generation, first_step, steps, ranks, data FROM rank_times WHERE job = ? ORDER BY generation, "
      "first_step");
  query.bind(1, Signed(job.value()));
  std::vector<RankStretch> out;
  while (query.executeStep()) {
    const size_t ranks = Unsigned(query.getColumn(3));
    const auto data = query.getColumn(4);
    const auto values = DecodeColumn(
        {static_cast<const char*>(data.getBlob()), static_cast<size_t>(data.getBytes())}, 3 * ranks);
    if (!values) throw SQLite::Exception(values.error().message, SQLITE_CORRUPT);
    RankStretch stretch{.generation = Generation(Unsigned(query.getColumn(0))),
                        .first_step = Unsigned(query.getColumn(1)),
                        .steps = Unsigned(query.getColumn(2))};
    for (size_t i = 0; i < ranks; ++i)
      stretch.ranks.push_back({(*values)[i], (*values)[ranks + i], (*values)[2 * ranks + i]});
    out.push_back(std::move(stretch));
  }
  query.reset();
  return out;
}

std::vector<RankStretch> WithoutRepeats(std::vector<RankStretch> stretches) {
  uint64_t done_again = UINT64_MAX;
  Generation generation;
  uint64_t first = UINT64_MAX;  // of the start that is looked at
  std::vector<RankStretch> out;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->generation != generation) done_again = std::min(done_again, first);
    generation = stretch->generation;
    first = stretch->first_step;
    if (stretch->first_step < done_again) out.push_back(std::move(*stretch));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace imgd
