#include "server/engine/node_readings.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace imgd {

void RecentBusy::Add(Instant now, double ratio) {
  const int64_t minute = std::chrono::floor<std::chrono::minutes>(now.time_since_epoch()).count();
  if (count_ > 0 && minute != minute_) {
    Minutes over = Means();
    const auto gap = std::min<size_t>(static_cast<size_t>(minute - minute_ - 1), kMinutes);
    over.insert(over.end(), gap, std::numeric_limits<float>::quiet_NaN());
    // One of them is the minute that goes on.
    if (over.size() > kMinutes - 1) over.erase(over.begin(), over.end() - (kMinutes - 1));
    over_ = std::make_shared<const Minutes>(std::move(over));
    sum_ = 0;
    count_ = 0;
  }
  minute_ = minute;
  sum_ += ratio;
  ++count_;
}

std::vector<float> RecentBusy::Means() const {
  Minutes means = *over_;
  if (count_ > 0) means.push_back(static_cast<float>(sum_ / count_));
  return means;
}

void NodeReadings::Take(const Readings& readings, Instant now) {
  latest.assign(readings.begin(), readings.end());
  double sum = 0;
  int count = 0;
  for (const auto& reading : readings) {
    if (!reading.error().empty()) continue;
    sum += reading.busy_ratio();
    ++count;
  }
  if (count > 0) busy.Add(now, sum / count);
}

}  // namespace imgd
