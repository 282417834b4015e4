#include "server/core/shares.h"

#include <algorithm>
#include <cmath>

namespace imgd {
namespace {

constexpr double kHour = 3600;

const Quota& Of(const std::map<std::string, Quota>& named, const std::string& name, const Quota& others) {
  const auto own = named.find(name);
  return own == named.end() ? others : own->second;
}

}  // namespace

const Quota& Quotas::OfUser(const std::string& name) const { return Of(users, name, user); }
const Quota& Quotas::OfProject(const std::string& name) const { return Of(projects, name, project); }

double Usage::At(WallTime now, Duration half_life) const {
  const auto passed = static_cast<double>(std::max<int64_t>(now.micros - at.micros, 0)) / 1e6;
  return device_seconds * std::exp2(-passed / std::chrono::duration<double>(half_life).count());
}

void Usage::Add(double more, WallTime now, Duration half_life) {
  device_seconds = At(now, half_life) + more;
  at = now;
}

uint32_t TurnOf(double device_seconds) {
  if (device_seconds < kHour) return 0;
  return static_cast<uint32_t>(std::log2(device_seconds / kHour)) + 1;
}

}  // namespace imgd
