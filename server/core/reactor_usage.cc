#include <algorithm>
#include <chrono>

#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's part in who has had how much, and may have more.
namespace imgd {
namespace {

/// What runs is counted so often, so that no more than this is lost where the daemon crashes.
constexpr Duration kChargeEvery = std::chrono::minutes(1);
/// What is hardly anything any more is forgotten; looked at so often.
constexpr Duration kForgetEvery = std::chrono::hours(1);
constexpr double kLeastSeconds = 1;
constexpr int64_t kForgottenAfterUs = 400LL * 24 * 3600 * 1'000'000;

double InSeconds(Duration time) { return std::chrono::duration<double>(time).count(); }

int64_t MicrosOf(Duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

bool LastsForEver(const Quota& quota) {
  return (quota.device_hours.most > 0 && quota.device_hours.per == Period::kTotal) ||
         (quota.spend.most > 0 && quota.spend.per == Period::kTotal);
}

}  // namespace

/// Those that it holds, which are more than its ranks where it has nodes for itself.
uint32_t Reactor::DevicesOf(const JobRecord& job) const {
  size_t devices = 0;
  for (const auto& part : job.run.Held()) {
    const NodeRecord* node = part.whole ? state_.FindNode(part.node) : nullptr;
    devices += node != nullptr ? node->devices.size() : part.devices.size();
  }
  return static_cast<uint32_t>(devices);
}

/// Of all that it holds: each node's price by the part of its devices.
double Reactor::PricePerHour(const JobRecord& job) const {
  double price = 0;
  for (const auto& part : job.run.Held()) {
    const NodeRecord* node = state_.FindNode(part.node);
    if (node == nullptr || node->devices.empty()) continue;
    const double devices = static_cast<double>(part.whole ? node->devices.size() : part.devices.size());
    price += node->price_per_hour * std::min(devices / static_cast<double>(node->devices.size()), 1.0);
  }
  return price;
}

/// Counts what the job has held since it was counted last, for itself and for its accounts. Before its
/// devices change, too.
void Reactor::Charge(JobId id, Now now) {
  JobRecord& job = state_.EditJob(id);
  const Duration passed = now.steady - job.run.charged_at;
  job.run.charged_at = now.steady;
  job.run.charged = now.wall;
  job.run.charged_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.steady - job.run.held_since).count();
  if (passed <= Duration::zero()) return;
  const double device_seconds = InSeconds(passed) * DevicesOf(job);
  const double cost = InSeconds(passed) / 3600 * PricePerHour(job);
  job.device_seconds += device_seconds;
  job.cost += cost;
  if (settings_.half_life > Duration::zero())
    state_.AddUsage(job.owner, device_seconds, now.wall, settings_.half_life);
  for (const auto& name : AccountsOf(job)) {
    const Quota& quota = settings_.quotas.OfAccount(name);
    Account& account = state_.EditAccount(name);
    const bool had_some = !UsedUpOf(quota, account, now.wall);
    account.Add(device_seconds, cost, {now.wall.micros - MicrosOf(passed)}, now.wall);
    if (had_some && UsedUpOf(quota, account, now.wall)) dirty_ = true;  // who waits is told why
  }
}

void Reactor::ChargeAll(Now now) {
  for (const JobId id : state_.active()) {
    if (now.steady >= state_.FindJob(id)->run.charged_at + kChargeEvery) Charge(id, now);
  }
  if (next_release_ && now.wall >= *next_release_) dirty_ = true;
  if (now.steady < next_forgetting_) return;
  next_forgetting_ = now.steady + kForgetEvery;
  ForgetOld(now.wall);
}

void Reactor::ForgetOld(WallTime now) {
  std::vector<std::string> users, accounts;
  for (const auto& [owner, usage] : state_.usage()) {
    if (settings_.half_life == Duration::zero() || usage.At(now, settings_.half_life) < kLeastSeconds)
      users.push_back(owner);
  }
  for (const auto& [name, account] : state_.accounts()) {
    if (account.last().micros < now.micros - kForgottenAfterUs &&
        !LastsForEver(settings_.quotas.OfAccount(name)))
      accounts.push_back(name);
  }
  for (const auto& owner : users) state_.DropUsage(owner);
  for (const auto& name : accounts) state_.DropAccount(name);
}

/// Who has had less lately comes first among jobs of one priority; what runs counts too.
void Reactor::TakeTurns(Now now) {
  if (settings_.half_life == Duration::zero()) return;
  std::map<std::string, double> had;
  for (const auto& [owner, usage] : state_.usage()) had[owner] = usage.At(now.wall, settings_.half_life);
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    had[job.owner] += InSeconds(now.steady - job.run.charged_at) * DevicesOf(job);
  }
  std::map<std::string, uint32_t> turns;
  for (const auto& [owner, device_seconds] : had) {
    if (const uint32_t turn = TurnOf(device_seconds); turn > 0) turns[owner] = turn;
  }
  state_.SetTurns(std::move(turns));
}

/// To the moment: with what runs.
std::map<std::string, Account> Reactor::AccountsAt(Now now) const {
  auto accounts = state_.accounts();
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    const Duration passed = now.steady - job.run.charged_at;
    if (passed <= Duration::zero()) continue;
    const WallTime from{now.wall.micros - MicrosOf(passed)};
    for (const auto& name : AccountsOf(job)) {
      accounts[name].Add(InSeconds(passed) * DevicesOf(job), InSeconds(passed) / 3600 * PricePerHour(job),
                         from, now.wall);
    }
  }
  return accounts;
}

void Reactor::FillAllowances(Snapshot& snapshot, Now now) const {
  const Quotas& quotas = settings_.quotas;
  snapshot.currency = settings_.currency;
  if (quotas == Quotas()) return;
  const auto allow = [&](const JobRecord& job) {
    for (const auto& account : AccountsOf(job)) {
      const uint32_t devices = quotas.OfAccount(account).devices;
      if (devices > 0) snapshot.allowances[account].devices = devices;
    }
  };
  for (const auto& job : state_.queue()) allow(*state_.FindJob(job.id));
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    allow(job);
    for (const auto& account : AccountsOf(job)) {
      const auto allowance = snapshot.allowances.find(account);
      if (allowance != snapshot.allowances.end()) allowance->second.used += DevicesOf(job);
    }
  }
  if (!quotas.HasBudgets()) return;
  for (const auto& [name, account] : AccountsAt(now)) {
    auto used_up = UsedUpOf(quotas.OfAccount(name), account, now.wall);
    if (used_up) snapshot.allowances[name].used_up = std::move(used_up);
  }
}

/// Nothing else needs to happen then for those who waited to be looked at.
void Reactor::NoteRelease(const Snapshot& snapshot) {
  next_release_.reset();
  for (const auto& [name, allowance] : snapshot.allowances) {
    if (!allowance.used_up || !allowance.used_up->until) continue;
    next_release_ = std::min(next_release_.value_or(*allowance.used_up->until), *allowance.used_up->until);
  }
}

std::vector<AccountUse> Reactor::Accounts(Now now) const {
  std::map<std::string, AccountUse> known;
  const auto use = [&known](const std::string& account) -> AccountUse& { return known[account]; };
  for (auto& [name, account] : AccountsAt(now)) use(name).used = account;
  for (const auto& [name, count] : state_.queued_of()) use(name).queued = count;
  for (const auto& [name, quota] : settings_.quotas.users) use("user " + name);
  for (const auto& [name, quota] : settings_.quotas.projects) use("project " + name);
  for (const auto& [owner, usage] : state_.usage())
    use("user " + owner).recent_device_seconds = usage.At(now.wall, settings_.half_life);
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    for (const auto& account : AccountsOf(job)) use(account).devices += DevicesOf(job);
    if (settings_.half_life > Duration::zero())
      use("user " + job.owner).recent_device_seconds +=
          InSeconds(now.steady - job.run.charged_at) * DevicesOf(job);
  }
  std::vector<AccountUse> out;
  for (auto& [name, account] : known) {
    account.account = name;
    account.quota = settings_.quotas.OfAccount(name);
    out.push_back(std::move(account));
  }
  return out;
}

}  // namespace imgd
