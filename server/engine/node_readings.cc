#include "server/engine/node_readings.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/device_figures.h"

namespace imgd {

namespace {

int64_t MinuteOf(Instant time) {
  return std::chrono::floor<std::chrono::minutes>(time.time_since_epoch()).count();
}

}  // namespace

void RecentBusy::Add(Instant now, double ratio) {
  const int64_t minute = MinuteOf(now);
  if (count_ > 0 && minute != minute_) {
    Minutes over = Means(now);
    over.pop_back();  // the one that begins
    over_ = std::make_shared<const Minutes>(std::move(over));
    sum_ = 0;
    count_ = 0;
  }
  minute_ = minute;
  sum_ += ratio;
  ++count_;
}

std::vector<float> RecentBusy::Means(Instant now) const {
  if (count_ == 0) return {};
  Minutes means = *over_;
  means.push_back(static_cast<float>(sum_ / count_));
  const auto silent = std::clamp<int64_t>(MinuteOf(now) - minute_, 0, kMinutes);
  means.insert(means.end(), static_cast<size_t>(silent), std::numeric_limits<float>::quiet_NaN());
  if (means.size() > kMinutes) means.erase(means.begin(), means.end() - kMinutes);
  return means;
}

void NodeReadings::Take(const Readings& readings, Instant now) {
  latest.assign(readings.begin(), readings.end());
  double sum = 0;
  int count = 0;
  for (const auto& reading : readings) {
    if (!WasRead(kBusyFigure, reading.error())) continue;
    sum += reading.busy_ratio();
    ++count;
  }
  if (count > 0) busy.Add(now, sum / count);
}

}  // namespace imgd
