#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "server/core/types.h"
#include "server/store/database.h"

/// What a job's figures were. A step report's figures are columns; a column is stored in pieces of 512
/// values, one row each (level 0). Of 8 such pieces the least, greatest and last of each 8 values are a row
/// of level 1; of 8 of those the same of each 64 values are a row of level 2; and so on. The newest reports,
/// fewer than 512, are in `events` alone, from where they are sealed into pieces together; some thousand stay
/// there for those who follow a job. Each start of a
/// job has its own columns; one that another has followed ends with a shorter piece.
namespace imgd {

inline constexpr size_t kPieceValues = 512;
inline constexpr size_t kFanOut = 8;

/// A column, by the number that stands for it in metrics.db: none is ever used for another.
enum class Figure : int {
  kStep = 1,
  kEpoch = 2,
  kTimeUs = 3,
  kLoss = 10,
  kTop1 = 11,
  kLearningRate = 12,
  kImagesPerSecond = 13,
  kInputWaitRatio = 14,
  kGradientNorm = 15,
  kPenalty = 16,
  kInputSeconds = 20,
  kForwardSeconds = 21,
  kBackwardSeconds = 22,
  kCommunicationSeconds = 23,
  kOptimizerSeconds = 24,
  kOwnLeastSeconds = 30,
  kOwnMostSeconds = 31,
  kWaitLeastSeconds = 32,
  kWaitMostSeconds = 33,
  kSlowestRank = 34,
  kGpuBusyLeast = 40,
  kGpuBusyMean = 41,
  kGpuBusyMost = 42,
};

/// Not in reports of older versions: what lacks of it is NaN, in place of an error.
inline bool MayLack(Figure figure) { return figure >= Figure::kGpuBusyLeast; }

/// A column's name for people.
struct FigureName {
  Figure figure;
  std::string_view name;
};
/// Those of step reports that can be drawn, in the order of the documents.
std::span<const FigureName> StepFigures();

/// A step report as history has it.
struct StepReport {
  uint64_t number = 0;  ///< of the event
  Generation generation;
  std::map<Figure, double> figures;
};
StepReport StepReportOf(uint64_t number, Generation generation, int64_t time_us, const std::string& payload);

/// What is sealed of one start.
struct SealedRun {
  Generation generation;
  uint64_t reports = 0;
  uint64_t last_number = 0;
  std::map<Figure, double> first;  ///< of kStep, kEpoch and kTimeUs
};
/// By generation. Throws SQLite::Exception.
std::vector<SealedRun> SealedRuns(Database& database, JobId job);

/// Up to `most` step reports with numbers above `after`. Throws SQLite::Exception.
std::vector<StepReport> StepReportsAfter(Database& database, JobId job, uint64_t after, size_t most);

/// Seals what there is of the job's unsealed reports, at most a few thousand; to be called where 512 or more
/// are. Throws SQLite::Exception.
void SealReports(Database& database, JobId job);

/// Of the events that are sealed, all go but the newest `kept`. Throws SQLite::Exception.
void DropSealed(Database& database, JobId job, size_t kept);

/// The same for reports that are not in `events` (a benchmark's): `reports` of one start that follow on its
/// sealed ones. Full pieces alone, unless `all`. Returns how many were sealed. Throws SQLite::Exception.
size_t SealThese(Database& database, JobId job, std::span<const StepReport> reports, bool all);

/// Of a level above 0.
struct Summary {
  double min = 0;
  double max = 0;
  double last = 0;
};
/// Adds what follows; NaN counts only where there is nothing else.
void Join(Summary& into, const Summary& next);

}  // namespace imgd
