#pragma once

#include "server/store/history_column.h"
#include "server/store/history_reader.h"

namespace imgd {

/// The mean of all the values that are numbers, where there is one. Throws and fails as the columns do.
Result<std::optional<double>> MeanOf(HistoryValues& values);

/// The mean of a rate over the work that was done: all of it over all the time that it took, so that a report
/// counts by what it is of. `work`: how far the job was after each stretch of the values, few at a time;
/// within one its steps are alike. `steps`: the step of each value. Both may fall where a later start began.
/// A value without one before it, whose work is not known, is left out, unless it is the first of a run that
/// began at step 0; where there are no others it is the mean of the values. Throws and fails as the columns
/// do.
Result<std::optional<double>> MeanRateOf(HistoryValues& rates, HistoryValues& steps,
                                         const std::vector<HistoryEntry>& work);

/// Values that are read to smooth the figures of a query, of all of them together: some 50 ms.
inline constexpr uint64_t kMostSmoothed = 1'500'000;

/// Puts into each point the exponentially weighted mean of all the values up to its last one, those of
/// `before` first; NaN where that last one is no number. The points stand for `values`, in order. `weight`,
/// above 0 and below 1, is what a value weighs against the next. Where points are far apart it reads only
/// what still counts: values that together weigh a part in 10^18 are left out. Where there are more than
/// `most` values, so many points have theirs as are read for that, and the others lie on straight lines
/// between them. Throws and fails as the columns do.
Status Smooth(HistoryValues& before, HistoryValues& values, double weight, uint64_t most,
              std::vector<CurvePoint>& points);

}  // namespace imgd
