#include "server/store/history_means.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace imgd {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/// The mean of what was so far, in which each value weighs so much less than the next. Without the start's
/// bias: the first value is the first mean (Kingma and Ba 2015, section 3).
class Smoother {
 public:
  explicit Smoother(double weight) : weight_(weight) {}
  void Add(double value) {
    if (!std::isfinite(value)) return;
    // It comes to rest, after as many values as count, and the division with it.
    if (const double share = share_ * weight_ + (1 - weight_); share != share_) {
      share_ = share;
      pull_ = (1 - weight_) / share;
    }
    mean_ += (value - mean_) * pull_;  // of equal values exactly these
    ++numbers_;
  }
  /// NaN before the first number.
  double Value() const { return share_ > 0 ? mean_ : kNoNumber; }
  uint64_t numbers() const { return numbers_; }

 private:
  double weight_;
  double mean_ = 0;
  double share_ = 0;
  double pull_ = 1;  ///< how far a value moves the mean
  uint64_t numbers_ = 0;
};

/// How many numbers back the others together weigh less than a part in 10^18.
uint64_t ReachOf(double weight) {
  constexpr double kNothing = 1e-18;
  return static_cast<uint64_t>(std::ceil(std::log(kNothing) / std::log(weight)));
}

/// Brings `smoother`, which knows the values before `from`, to the values before `to`.
Status Advance(HistoryValues& values, uint64_t from, uint64_t to, double weight, Smoother& smoother) {
  const uint64_t reach = ReachOf(weight);
  // Further back where many of them are no numbers.
  for (uint64_t back = reach; back < to - from; back *= 8) {
    Smoother last(weight);
    IMGD_TRY(values.Each(to - back, to, [&last](double value) { last.Add(value); }));
    if (last.numbers() < reach) continue;
    smoother = last;
    return {};
  }
  return values.Each(from, to, [&smoother](double value) { smoother.Add(value); });
}

/// Each so-many-th point can be read up to, without reading more than `most` values.
size_t StrideOf(uint64_t values, size_t points, double weight, uint64_t most) {
  if (values <= most) return 1;
  const uint64_t each = ReachOf(weight) + kPieceValues;  // pieces are read whole
  const size_t places = std::max<uint64_t>(most / each, 2);
  return (points + places - 1) / places;
}

}  // namespace

Result<std::optional<double>> MeanOf(HistoryValues& values) {
  double sum = 0;
  uint64_t numbers = 0;
  IMGD_TRY(values.Each(0, values.size(), [&](double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    ++numbers;
  }));
  return numbers == 0 ? std::optional<double>() : sum / static_cast<double>(numbers);
}

Result<std::optional<double>> MeanRateOf(HistoryValues& rates, HistoryValues& steps,
                                         const std::vector<HistoryEntry>& work) {
  constexpr uint64_t kAtOnce = 64 * kPieceValues;
  double done = 0;
  double time = 0;
  double step_before = 0;
  double work_before = kNoNumber;
  uint64_t from = 0;
  std::vector<double> taken;  // steps of each value
  std::vector<double> rate;
  for (auto stretch = work.begin(); stretch != work.end();) {
    auto last = stretch;
    uint64_t to = from;
    while (last != work.end() && to < from + kAtOnce) to += (last++)->count;
    taken.clear();
    rate.clear();
    IMGD_TRY(steps.Each(from, to, [&](double step) {
      const double more = step - std::exchange(step_before, step);
      taken.push_back(more > 0 ? more : 0);
    }));
    IMGD_TRY(rates.Each(from, to, [&](double value) { rate.push_back(value); }));
    if (from == 0) {
      // Of a run that began at step 0 the first report is of no more steps than the next; of others of how
      // many nobody knows.
      const bool from_start = taken.size() > 1 && taken[0] <= taken[1];
      (from_start ? work_before : taken[0]) = 0;
    }
    size_t at = 0;
    for (; stretch != last; ++stretch) {
      // The steps of one that a later start began with are not known.
      const double begun = work_before <= stretch->values.min ? work_before : stretch->values.min;
      const size_t end = at + stretch->count;
      const double all = std::accumulate(taken.begin() + at, taken.begin() + end, 0.0);
      const double each = (stretch->values.last - begun) / all;
      for (; at < end; ++at) {
        const double more = taken[at] * each;
        if (!(more > 0) || !(rate[at] > 0) || !std::isfinite(rate[at])) continue;
        done += more;
        time += more / rate[at];
      }
      work_before = stretch->values.last;
    }
    from = to;
  }
  return time > 0 ? Result<std::optional<double>>(done / time) : MeanOf(rates);
}

Status Smooth(HistoryValues& before, HistoryValues& values, double weight, uint64_t most,
              std::vector<CurvePoint>& points) {
  Smoother smoother(weight);
  IMGD_TRY(Advance(before, 0, before.size(), weight, smoother));
  const size_t stride = StrideOf(values.size(), points.size(), weight, most);
  uint64_t known = 0;  // values that the smoother has had
  uint64_t next = 0;
  size_t last = 0;  // point of these
  for (size_t i = 0; i < points.size(); ++i) {
    next += points[i].count;
    if (i % stride != 0 && i + 1 != points.size()) continue;
    IMGD_TRY(Advance(values, known, next, weight, smoother));
    known = next;
    points[i].smooth = smoother.Value();
    for (size_t between = last + 1; between < i; ++between) {
      const double share = static_cast<double>(between - last) / static_cast<double>(i - last);
      points[between].smooth = std::lerp(*points[last].smooth, *points[i].smooth, share);
    }
    last = i;
  }
  // A mean that goes on where the loss does not would make a run that diverged look well.
  for (auto& point : points) {
    if (!std::isfinite(point.values.last)) point.smooth = kNoNumber;
  }
  return {};
}

}  // namespace imgd
