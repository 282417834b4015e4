#include <algorithm>
#include <chrono>
#include <set>

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

/// Of a name in the record of what was had lately, where users have no prefix.
std::string AccountIn(const std::string& who) { return who.starts_with("project ") ? who : "user " + who; }

bool LastsForEver(const Quota& quota) {
  return (quota.device_hours.most > 0 && quota.device_hours.per == Period::kTotal) ||
         (quota.spend.most > 0 && quota.spend.per == Period::kTotal);
}

}  // namespace

HeldDevices Reactor::HeldBy(const JobRecord& job) const {
  return imgd::HeldBy(job, [this](const NodeId& id) { return state_.FindNode(id); });
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
  const HeldDevices held = HeldBy(job);
  const double device_seconds = InSeconds(passed) * held.devices;
  const double cost = InSeconds(passed) / 3600 * held.price_per_hour;
  job.device_seconds += device_seconds;
  job.cost += cost;
  if (settings_.half_life > Duration::zero()) {
    state_.AddUsage(job.owner, device_seconds, now.wall, settings_.half_life);
    state_.AddUsage(ProjectOf(job), device_seconds, now.wall, settings_.half_life);
  }
  for (const auto& name : AccountsOf(job)) {
    const Quota& quota = settings_.quotas.OfAccount(name);
    Account& account = state_.EditAccount(name);
    const bool had_some = !UsedUpOf(quota, account, now.wall);
    account.Add(device_seconds, cost, {now.wall.micros - MicrosOf(passed)}, now.wall);
    if (had_some && UsedUpOf(quota, account, now.wall)) dirty_ = true;  // who waits is told why
  }
}

/// What runs there costs another part of another price from now on.
void Reactor::ChargeOn(const NodeRecord& node, Now now) {
  const std::set<JobId> holders(node.holders.begin(), node.holders.end());
  for (const JobId id : holders) {
    if (id != JobId()) Charge(id, now);
  }
}

void Reactor::ChargeAll(Now now) {
  for (const auto& [id, holding] : state_.holdings()) {
    if (now.steady >= holding.job->run.charged_at + kChargeEvery) Charge(id, now);
  }
  if (next_release_ && now.wall >= *next_release_) dirty_ = true;
  if (next_aging_ && now.wall >= *next_aging_) dirty_ = true;
}

/// Once in a while.
bool Reactor::ForgettingDue(Now now) {
  if (now.steady < next_forgetting_) return false;
  next_forgetting_ = now.steady + kForgetEvery;
  return true;
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

/// By account ("user ada"): what is left of what they have had; what runs counts too.
std::map<std::string, double> Reactor::HadLately(Now now) const {
  std::map<std::string, double> had;
  if (settings_.half_life == Duration::zero()) return had;
  for (const auto& [who, usage] : state_.usage())
    had[AccountIn(who)] = usage.At(now.wall, settings_.half_life);
  ByAccounts<double*> of_whom([&had](const std::string& account) { return &had[account]; });
  for (const auto& [id, holding] : state_.holdings()) {
    const JobRecord& job = *holding.job;
    for (double* const all : of_whom.Of(job, holding.accounts))
      *all += InSeconds(now.steady - job.run.charged_at) * holding.devices;
  }
  return had;
}

/// Who has waited for long is as one of a higher priority; among equals who has had less lately comes first.
void Reactor::PutInOrder(Now now) {
  Ranking ranking{.aging = settings_.aging, .at = now.wall};
  for (const auto& [account, device_seconds] : HadLately(now)) {
    const uint32_t turn = TurnOf(device_seconds / settings_.shares.OfAccount(account));
    if (turn > 0) ranking.turns[account] = turn;
  }
  next_aging_ = state_.SetRanking(std::move(ranking));
  // Of many jobs some gain a step all the time, and a hundredth of it is nothing to wait for.
  if (next_aging_)
    next_aging_->micros = std::max(next_aging_->micros, now.wall.micros + MicrosOf(settings_.aging) / 100);
}

/// To the moment: with what runs. `wanted(quota)`: of whom, and whether what it cost is wanted too.
std::map<std::string, Account> Reactor::AccountsAt(Now now, WantedOf (*wanted)(const Quota&)) const {
  std::map<std::string, Account> accounts;
  for (const auto& [name, account] : state_.accounts()) {
    if (wanted(settings_.quotas.OfAccount(name)) != WantedOf::kNothing) accounts.emplace(name, account);
  }
  struct Counted {
    Account* account = nullptr;
    bool costs = false;
  };
  ByAccounts<Counted> of_whom([&](const std::string& name) -> Counted {
    const WantedOf what = wanted(settings_.quotas.OfAccount(name));
    if (name == kNoProject || what == WantedOf::kNothing) return {};
    return {&accounts[name], what == WantedOf::kAll};
  });
  for (const auto& [id, holding] : state_.holdings()) {
    const JobRecord& job = *holding.job;
    const Duration passed = now.steady - job.run.charged_at;
    if (passed <= Duration::zero()) continue;
    const auto& counted = of_whom.Of(job, holding.accounts);
    const bool costs = counted[0].costs || counted[1].costs;
    const double cost = costs ? InSeconds(passed) / 3600 * HeldBy(job).price_per_hour : 0;
    const WallTime from{now.wall.micros - MicrosOf(passed)};
    for (const auto& [account, _] : counted) {
      if (account != nullptr) account->Add(InSeconds(passed) * holding.devices, cost, from, now.wall);
    }
  }
  return accounts;
}

void Reactor::FillAllowances(Snapshot& snapshot, Now now) const {
  const Quotas& quotas = settings_.quotas;
  snapshot.currency = settings_.currency;
  if (quotas == Quotas()) return;
  const auto allow = [&](const std::string& account) -> Allowance* {
    const uint32_t devices = quotas.OfAccount(account).devices;
    if (devices == 0 || account == kNoProject) return nullptr;
    Allowance& allowance = snapshot.allowances[account];
    allowance.devices = devices;
    return &allowance;
  };
  for (const auto& [account, waiting] : state_.queued_of()) allow(account);
  ByAccounts<Allowance*> of_whom(allow);
  for (const auto& [id, holding] : state_.holdings()) {
    for (Allowance* const allowance : of_whom.Of(*holding.job, holding.accounts)) {
      if (allowance != nullptr) allowance->used += holding.devices;
    }
  }
  if (!quotas.HasBudgets()) return;
  const auto bounded = [](const Quota& quota) {
    if (!quota.HasBudgets()) return WantedOf::kNothing;
    return quota.spend.most > 0 ? WantedOf::kAll : WantedOf::kTime;
  };
  for (const auto& [name, account] : AccountsAt(now, bounded)) {
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
  const auto all = [](const Quota&) { return WantedOf::kAll; };
  for (auto& [name, account] : AccountsAt(now, all)) use(name).used = account;
  for (const auto& [name, count] : state_.queued_of()) use(name).queued = count;
  for (const auto& [name, quota] : settings_.quotas.users) use("user " + name);
  for (const auto& [name, quota] : settings_.quotas.projects) use("project " + name);
  for (const auto& [name, share] : settings_.shares.users) use("user " + name);
  for (const auto& [name, share] : settings_.shares.projects) use("project " + name);
  for (const auto& [account, device_seconds] : HadLately(now)) {
    // What has no project is no account that anybody knows.
    if (account != "project ") use(account).recent_device_seconds = device_seconds;
  }
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    for (const auto& account : AccountsOf(job)) use(account).devices += HeldBy(job).devices;
  }
  std::vector<AccountUse> out;
  for (auto& [name, account] : known) {
    account.account = name;
    account.quota = settings_.quotas.OfAccount(name);
    account.share = settings_.shares.OfAccount(name);
    out.push_back(std::move(account));
  }
  return out;
}

}  // namespace imgd
