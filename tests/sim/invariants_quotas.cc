// What must always hold for who may have how much, and whose turn it is; and for what gangs ask of nodes.
#include <algorithm>

#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

double SecondsIn(Duration time) { return std::chrono::duration<double>(time).count(); }

/// "user ada" and "project vision", by what was submitted.
std::vector<std::string> AccountsIn(const World& world, const JobRecord& job) {
  const Submission& wanted = world.truths.at(job.name).submission;
  std::vector<std::string> accounts = {"user " + wanted.owner};
  if (!wanted.project.empty()) accounts.push_back("project " + wanted.project);
  return accounts;
}

/// The same, and what all have that is of no project.
std::vector<std::string> CountedIn(const World& world, const JobRecord& job) {
  auto accounts = AccountsIn(world, job);
  if (accounts.size() == 1) accounts.emplace_back("project ");
  return accounts;
}

bool IsOf(const World& world, const JobRecord& job, const std::string& account) {
  const Submission& wanted = world.truths.at(job.name).submission;
  return account == "user " + wanted.owner || account == "project " + wanted.project;
}

/// By the operator's word: what is said of the name, else what is said of all.
const Quota& QuotaIn(const World& world, const std::string& account) {
  const Quotas& quotas = world.shape.quotas;
  const bool user = account.starts_with("user ");
  const auto& named = user ? quotas.users : quotas.projects;
  const auto own = named.find(account.substr(account.find(' ') + 1));
  return own != named.end() ? own->second : user ? quotas.user : quotas.project;
}

/// What a period has of what was used. The only border that a life sees is its midnight, which ends all
/// periods but "total".
struct Used {
  double device_seconds = 0;
  double cost = 0;
};
Used UsedIn(const World& world, const std::string& account, Period per) {
  Used sum;
  const auto uses = world.ledger.used.find(account);
  if (uses == world.ledger.used.end()) return sum;
  const Instant now = world.time.now().steady;
  const Instant midnight = now - world.time.passed() + world.shape.to_midnight;
  const Instant begin = per == Period::kTotal || now < midnight ? Instant::min() : midnight;
  for (const auto& use : uses->second) {
    const Instant from = std::max(use.from, begin);
    const Instant to = std::min(use.to, now);
    if (from >= to) continue;
    sum.device_seconds += use.devices * SecondsIn(to - from);
    sum.cost += use.price_per_hour * SecondsIn(to - from) / 3600;
  }
  return sum;
}

/// How much of its budgets the account has used, of the one that is used most; 1: all.
double ShareUsed(const World& world, const std::string& account) {
  const Quota& quota = QuotaIn(world, account);
  double share = 0;
  if (quota.device_hours.most > 0) {
    const Used used = UsedIn(world, account, quota.device_hours.per);
    share = used.device_seconds / 3600 / quota.device_hours.most;
  }
  if (quota.spend.most > 0)
    share = std::max(share, UsedIn(world, account, quota.spend.per).cost / quota.spend.most);
  return share;
}
/// So much more or less counts as the same.
constexpr double kSlack = 0.01;

/// Devices that the jobs of the account have, or are to have where they grow.
uint32_t DevicesHeld(const World& world, const std::string& account) {
  const auto& state = world.daemon.reactor().state();
  size_t devices = 0;
  for (const auto& [id, holding] : state.holdings()) {
    const JobRecord& job = *holding.job;
    if (!IsOf(world, job, account)) continue;
    for (const auto& part : job.run.Held()) devices += DevicesOf(world, part).size();
  }
  return static_cast<uint32_t>(devices);
}

/// As many as it could take, where it wants nodes for itself: nodes get no more devices than that.
uint32_t DevicesWanted(const World& world, const JobRecord& job) {
  constexpr uint32_t kMostOnANode = 8;
  const bool whole = world.truths.at(job.name).submission.needs.whole_nodes;
  return job.nodes * (whole ? std::max(kMostOnANode, job.ranks_per_node) : job.ranks_per_node);
}

/// What the job holds from now on, and what that costs.
Ledger::Use UseOf(const World& world, const JobRecord& job) {
  Ledger::Use use{.job = job.id, .from = world.time.now().steady, .to = Instant::max()};
  for (const auto& part : job.run.parts) {
    const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
    const auto devices = static_cast<double>(DevicesOf(world, part).size());
    use.devices += devices;
    use.price_per_hour += node->price_per_hour * devices / static_cast<double>(node->devices.size());
  }
  return use;
}

/// A node that comes back with another number of devices has other prices of each.
void NoteOtherPrices(World& world) {
  for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
    const JobRecord& job = *holding.job;
    if (!world.ledger.jobs[id].uses) continue;
    const Ledger::Use now = UseOf(world, job);
    for (const auto& account : CountedIn(world, job)) {
      auto& uses = world.ledger.used[account];
      const auto open = std::find_if(uses.begin(), uses.end(), [id](const Ledger::Use& use) {
        return use.job == id && use.to == Instant::max();
      });
      if (open == uses.end() || (open->devices == now.devices && open->price_per_hour == now.price_per_hour))
        continue;
      open->to = now.from;
      uses.push_back(now);
    }
  }
}

/// The changes that begin or end holding devices are noted, for all accounts of the job. Before the rules.
void NoteUse(World& world, const Batch& batch, const char*) {
  const Instant now = world.time.now().steady;
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job == nullptr || job->by_hand) continue;
    Ledger::Job& known = world.ledger.jobs[event->job];
    if (known.uses && !HoldsDevices(event->to)) {
      known.uses = false;
      for (const auto& account : CountedIn(world, *job)) {
        for (auto& use : world.ledger.used[account])
          if (use.job == job->id && use.to == Instant::max()) use.to = now;
      }
    }
    if (event->to != JobState::kStarting || StartedBy(world, action) == nullptr) continue;
    const Ledger::Use use = UseOf(world, *job);
    known.uses = true;
    for (const auto& account : CountedIn(world, *job)) world.ledger.used[account].push_back(use);
  }
  if (batch.nodes_touched) NoteOtherPrices(world);
}

template <typename Rule>
void ForStarted(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const JobRecord* job = StartedBy(world, action);
    if (job != nullptr) rule(*job);
  }
}

/// After a start its accounts hold no more devices than they may.
void QuotasOfDevicesHold(World& world, const Batch& batch, const char* name) {
  ForStarted(world, batch, [&](const JobRecord& job) {
    for (const auto& account : AccountsIn(world, job)) {
      const uint32_t most = QuotaIn(world, account).devices;
      if (most == 0) continue;
      const uint32_t held = DevicesHeld(world, account);
      if (held > most)
        world.Break(name, fmt::format("{} holds {} devices of {} with job {}", account, held, most, job.id));
    }
  });
}

/// Nothing starts for who has used up what they may; what only ended to grow goes on.
void QuotasOfUseHold(World& world, const Batch& batch, const char* name) {
  ForStarted(world, batch, [&](const JobRecord& job) {
    if (job.IsElastic()) return;
    for (const auto& account : AccountsIn(world, job)) {
      const double used = ShareUsed(world, account);
      if (used > 1 + kSlack)
        world.Break(name, fmt::format("job {} started when {} had used {:.2f} of what it may", job.id,
                                      account, used));
    }
  });
}

/// No more jobs than may wait are taken: of those who waited before and still do, and those who came.
void QuotasOfWaitingHold(World& world, const Batch& batch, const char* name) {
  std::map<std::string, uint32_t> came;
  const auto& state = world.daemon.reactor().state();
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    const JobRecord* job = event != nullptr && event->first ? state.FindJob(event->job) : nullptr;
    if (job == nullptr || job->by_hand) continue;
    for (const auto& account : AccountsIn(world, *job)) ++came[account];
  }
  const auto waits = [](JobState now) { return now == JobState::kQueued || now == JobState::kPaused; };
  for (const auto& [account, count] : came) {
    const uint32_t most = QuotaIn(world, account).queued;
    if (most == 0) continue;
    uint32_t had = 0;
    for (const auto& [id, known] : world.ledger.jobs) {
      const JobRecord* job =
          known.generation == Generation() && !waits(known.state) ? nullptr : state.FindJob(id);
      const bool before = known.acknowledged && waits(known.state);
      if (job != nullptr && before && waits(job->state) && IsOf(world, *job, account)) ++had;
    }
    if (had + count > most)
      world.Break(name, fmt::format("{} of {} wait and {} more came, of {}", had, account, count, most));
  }
}

/// A job that is told to wait for a quota has none left, or an earlier one of the account waits for it.
void QuotasAreNotInTheWayOfOthers(World& world, const Batch& batch, const char* name) {
  const bool changed = batch.nodes_touched || !batch.touched.empty();
  const auto& reactor = world.daemon.reactor();
  const uint64_t every = changed ? 4 : 16;  // for its cost
  if (!world.ledger.Looks(every) || reactor.WantsToSchedule()) return;
  for (const auto& entry : reactor.state().queue()) {
    if (entry.code != ReasonCode::kQuota) continue;
    const JobRecord& job = *reactor.state().FindJob(entry.id);
    if (LacksQuota(world, job)) continue;
    world.Break(name, fmt::format("job {} waits for a quota that it has: {}", job.id, job.reason.text));
  }
}

/// Two jobs that ask for the same, so that whatever does for one does for the other.
bool AskTheSame(const World& world, const JobRecord& a, const JobRecord& b) {
  const Submission& first = world.truths.at(a.name).submission;
  const Submission& second = world.truths.at(b.name).submission;
  return a.priority == b.priority && a.nodes == b.nodes && a.max_nodes == b.max_nodes &&
         a.ranks_per_node == b.ranks_per_node && first.needs == second.needs && a.time_limit_ms == 0 &&
         b.time_limit_ms == 0 && IsTied(world, a) == IsTied(world, b);
}

double ShareIn(const std::map<std::string, double>& named, const std::string& name) {
  const auto own = named.find(name);
  return own == named.end() ? 1 : own->second;
}

/// As shares.h tells it: by doublings of a device-hour, of what was had by the share. `more`: by so much what
/// is known may be wrong.
uint32_t DoublingsOf(double had, double share, double more) {
  double hours = (had * (1 + more * 0.02) + more * SecondsIn(minutes(2))) / 3600 / share;
  uint32_t turn = 0;
  for (; hours >= 1; hours /= 2) ++turn;
  return turn;
}

/// First that of its project, then that of its user; jobs without a project count for one together.
std::pair<uint32_t, uint32_t> TurnIn(const World& world, const JobRecord& job, double more) {
  const Submission& wanted = world.truths.at(job.name).submission;
  const Shares& shares = world.shape.shares;
  const auto had = [&](const std::string& account) {
    return UsedIn(world, account, Period::kTotal).device_seconds;
  };
  return {DoublingsOf(had("project " + wanted.project), ShareIn(shares.projects, wanted.project), more),
          DoublingsOf(had("user " + wanted.owner), ShareIn(shares.users, wanted.owner), more)};
}

/// Whether it surely has the earlier turn.
bool HasTurnBefore(const World& world, const JobRecord& a, const JobRecord& b) {
  const auto late = TurnIn(world, a, 1);
  const auto early = TurnIn(world, b, -1);
  const bool same_project =
      world.truths.at(a.name).submission.project == world.truths.at(b.name).submission.project;
  return same_project ? late.second < early.second : late.first < early.first;
}

/// Of jobs that ask for the same, and have the same priority, none starts before one whose user has had less,
/// and of one user's the older goes first.
void TurnsAreTaken(World& world, const Batch& batch, const char* name) {
  const auto& reactor = world.daemon.reactor();
  if (reactor.WantsToSchedule()) return;
  const Instant now = world.time.now().steady;
  ForStarted(world, batch, [&](const JobRecord& started) {
    if (!started.checkpoints.empty() || !started.run.avoided.empty() || started.IsElastic()) return;
    for (const auto& entry : reactor.state().queue()) {
      const bool waits =
          entry.code == ReasonCode::kWaitsForDevices || entry.code == ReasonCode::kWaitsBehindJob;
      const JobRecord& job = *reactor.state().FindJob(entry.id);
      if (!waits || job.not_before > now || !job.checkpoints.empty() || !job.avoid.empty()) continue;
      if (!AskTheSame(world, job, started)) continue;
      const bool same_user = job.owner == started.owner && job.project == started.project;
      const bool less = world.settings.half_life > Duration::zero() && HasTurnBefore(world, job, started);
      const bool as_old = StepsOfAge(WaitsSince(job), world.shape.aging, world.time.now().wall) ==
                          StepsOfAge(WaitsSince(started), world.shape.aging, world.time.now().wall);
      if ((less && as_old) || (same_user && as_old && job.id < started.id))
        world.Break(name, fmt::format("job {} started before job {}", started.id, job.id));
    }
  });
}

/// A gang has only nodes and devices that are as it asks.
void NeedsHold(World& world, const Batch& batch, const char* name) {
  ForStarted(world, batch, [&](const JobRecord& job) {
    const Needs& needs = world.truths.at(job.name).submission.needs;
    for (const auto& part : job.run.parts) {
      const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
      if (node == nullptr || !NodeDoes(needs, *node))
        world.Break(name, fmt::format("job {} is on {}, which is not as it asks: {} of {} GiB", job.id,
                                      part.node, node == nullptr ? "?" : node->devices.front().model,
                                      node == nullptr ? 0 : node->devices.front().memory_bytes >> 30));
      if (!needs.whole_nodes) continue;
      for (const auto& device : node->devices) {
        const auto holder = world.ledger.holders.find({part.node, device.index});
        if (holder == world.ledger.holders.end() || holder->second != job.id)
          world.Break(name, fmt::format("job {} does not have {} for itself", job.id, part.node));
      }
    }
  });
}

/// That a period is over is noticed a moment later.
bool PeriodJustEnded(const World& world) {
  const Instant now = world.time.now().steady;
  const Duration since_midnight = world.time.passed() - world.shape.to_midnight;
  return since_midnight >= Duration::zero() &&
         (since_midnight < seconds(3) || world.daemon.disturbed() > now - seconds(3));
}

}  // namespace

bool HasQuotas(const World& world, const JobRecord& job) {
  const auto accounts = AccountsIn(world, job);
  return std::any_of(accounts.begin(), accounts.end(), [&world](const std::string& account) {
    const Quota& quota = QuotaIn(world, account);
    return quota.devices > 0 || quota.device_hours.most > 0 || quota.spend.most > 0;
  });
}

bool MayBeAboveQuota(const World& world, const JobRecord& job) {
  if (PeriodJustEnded(world)) return HasQuotas(world, job);
  const auto accounts = AccountsIn(world, job);
  return std::any_of(accounts.begin(), accounts.end(), [&](const std::string& account) {
    // What jobs have while they grow is not noted here.
    const bool grows = world.truths.at(job.name).submission.owner == kElasticOwner;
    return ShareUsed(world, account) > 1 - (grows ? 0.2 : kSlack);
  });
}

bool LacksQuota(const World& world, const JobRecord& job) {
  if (PeriodJustEnded(world)) return HasQuotas(world, job);
  if (MayBeAboveQuota(world, job)) return true;
  for (const auto& account : AccountsIn(world, job)) {
    const uint32_t most = QuotaIn(world, account).devices;
    if (most == 0) continue;
    if (DevicesHeld(world, account) + DevicesWanted(world, job) > most) return true;
    const auto& state = world.daemon.reactor().state();
    for (const auto& entry : state.queue()) {
      if (entry.id == job.id) break;
      if (IsOf(world, *state.FindJob(entry.id), account)) return true;
    }
  }
  return false;
}

uint32_t MostOfAWholeNode(const World& world, const JobRecord& job) {
  uint32_t least = UINT32_MAX;
  if (!world.truths.at(job.name).submission.needs.whole_nodes) return least;
  for (const auto& account : AccountsIn(world, job)) {
    const uint32_t most = QuotaIn(world, account).devices;
    if (most > 0) least = std::min(least, most / job.nodes);
  }
  return least;
}

bool MayNeverHave(const World& world, const JobRecord& job) {
  for (const auto& account : AccountsIn(world, job)) {
    const uint32_t most = QuotaIn(world, account).devices;
    if (most > 0 && DevicesWanted(world, job) > most) return true;
    if (ShareUsed(world, account) > 1 - kSlack) return true;
  }
  return false;
}

const std::vector<Invariant>& QuotaInvariants() {
  static const std::vector<Invariant> rules = {
      {"(use is noted)", NoteUse},
      {"needs hold", NeedsHold},
      {"quotas of devices hold", QuotasOfDevicesHold},
      {"quotas of what is used hold", QuotasOfUseHold},
      {"quotas of jobs that wait hold", QuotasOfWaitingHold},
      {"who waits for a quota lacks it", QuotasAreNotInTheWayOfOthers},
      {"turns are taken", TurnsAreTaken},
  };
  return rules;
}

}  // namespace imgd::sim
