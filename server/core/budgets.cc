#include "server/core/budgets.h"

#include <algorithm>
#include <chrono>

namespace imgd {
namespace {

using std::chrono::days;
using std::chrono::sys_days;

WallTime AtMidnight(sys_days day) {
  return {std::chrono::duration_cast<std::chrono::microseconds>(day.time_since_epoch()).count()};
}

/// Nothing of it counts in this period: it is of an older one, or so far ahead that the clock was wrong.
bool IsOfAnother(const Tally& tally, const PeriodSpan& span) {
  return tally.since < span.from || (span.until && tally.since > *span.until);
}

}  // namespace

PeriodSpan SpanAt(Period period, WallTime now) {
  const auto day = std::chrono::floor<days>(
      std::chrono::sys_time<std::chrono::microseconds>(std::chrono::microseconds(now.micros)));
  switch (period) {
    case Period::kDay:
      return {AtMidnight(day), AtMidnight(day + days(1))};
    case Period::kWeek: {
      const auto monday = day - (std::chrono::weekday(day) - std::chrono::Monday);
      return {AtMidnight(monday), AtMidnight(monday + days(7))};
    }
    case Period::kMonth: {
      const std::chrono::year_month_day date(day);
      const auto month = date.year() / date.month();
      return {AtMidnight(month / 1), AtMidnight((month + std::chrono::months(1)) / 1)};
    }
    case Period::kTotal:
      break;
  }
  return {};
}

void Account::Add(double device_seconds, double cost, WallTime from, WallTime to) {
  for (const Period period : kPeriods) {
    Tally& tally = tallies_[static_cast<size_t>(period) - 1];
    const PeriodSpan span = SpanAt(period, to);
    if (IsOfAnother(tally, span)) tally = {.since = span.from};
    double part = 1;
    if (from < span.from && from < to)
      part = static_cast<double>(to.micros - span.from.micros) / static_cast<double>(to.micros - from.micros);
    tally.device_seconds += device_seconds * part;
    tally.cost += cost * part;
  }
  last_ = std::max(last_, to);
}

Tally Account::In(Period period, WallTime now) const {
  const Tally& tally = Of(period);
  const PeriodSpan span = SpanAt(period, now);
  return IsOfAnother(tally, span) ? Tally{.since = span.from} : tally;
}

void Account::Put(Period period, const Tally& tally) { tallies_[static_cast<size_t>(period) - 1] = tally; }

}  // namespace imgd
