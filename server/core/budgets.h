#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/clock.h"

/// What accounts have used in a day, a week, a month and in all, and how much they may.
namespace imgd {

/// When what is used begins anew, UTC: at midnight, on Monday, on the first of the month, never. The numbers
/// are those of proto/imgd/v1/usage.proto and of the database.
enum class Period : uint8_t { kDay = 1, kWeek = 2, kMonth = 3, kTotal = 4 };
inline constexpr std::array kPeriods = {Period::kDay, Period::kWeek, Period::kMonth, Period::kTotal};

/// The period that a moment is in.
struct PeriodSpan {
  WallTime from;                  ///< zero for kTotal
  std::optional<WallTime> until;  ///< the first moment that is not in it; nothing for kTotal
};
PeriodSpan SpanAt(Period period, WallTime now);

/// The most that may be used in a period; 0: any amount.
struct Budget {
  double most = 0;
  Period per = Period::kMonth;
  bool operator==(const Budget&) const = default;
};

/// What was used since the beginning of a period.
struct Tally {
  WallTime since;
  double device_seconds = 0;
  double cost = 0;
  bool operator==(const Tally&) const = default;
};

/// What one account has used, by period.
class Account {
 public:
  /// Something that was used evenly from `from` to `to`; of a period that `to` is not in any more nothing is
  /// kept. A clock that was set back by no more than a period does not bring an old one back; one that was
  /// further ahead keeps none from beginning.
  void Add(double device_seconds, double cost, WallTime from, WallTime to);
  /// Nothing of a period that is over, nor of one that is further ahead than the next.
  Tally In(Period period, WallTime now) const;
  /// When it used something last.
  WallTime last() const { return last_; }

  /// As it was stored.
  void Put(Period period, const Tally& tally);
  const Tally& Of(Period period) const { return tallies_[static_cast<size_t>(period) - 1]; }
  void PutLast(WallTime last) { last_ = last; }
  bool operator==(const Account&) const = default;

 private:
  std::array<Tally, kPeriods.size()> tallies_;
  WallTime last_;
};

}  // namespace imgd
