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

const Quota& Quotas::OfAccount(const std::string& account) const {
  const size_t space = account.find(' ');
  const std::string name = account.substr(space + 1);
  return account.starts_with("user ") ? OfUser(name) : OfProject(name);
}

double Shares::OfAccount(const std::string& account) const {
  const auto& named = account.starts_with("user ") ? users : projects;
  const auto own = named.find(account.substr(account.find(' ') + 1));
  return own == named.end() ? 1 : own->second;
}

bool Quotas::HasBudgets() const {
  const auto any = [](const std::map<std::string, Quota>& named) {
    return std::any_of(named.begin(), named.end(), [](const auto& item) { return item.second.HasBudgets(); });
  };
  return user.HasBudgets() || project.HasBudgets() || any(users) || any(projects);
}

std::optional<UsedUp> UsedUpOf(const Quota& quota, const Account& account, WallTime now) {
  std::optional<UsedUp> out;
  const auto look = [&](const Budget& budget, bool spend) {
    if (budget.most <= 0) return;
    const Tally tally = account.In(budget.per, now);
    const double used = spend ? tally.cost : tally.device_seconds / kHour;
    if (used < budget.most) return;
    const auto until = SpanAt(budget.per, now).until;
    const bool longer = !out || (out->until && (!until || *until > *out->until));
    if (longer) out = UsedUp{.spend = spend, .used = used, .budget = budget, .until = until};
  };
  look(quota.device_hours, false);
  look(quota.spend, true);
  return out;
}

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
