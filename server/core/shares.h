#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/core/budgets.h"
#include "server/core/types.h"

/// Who may have how much, and who has had how much lately.
namespace imgd {

/// What an account (a user or a project) may have at once, and use in time; 0: any number.
struct Quota {
  uint32_t devices = 0;
  uint32_t queued = 0;  ///< jobs that wait or are paused
  Budget device_hours;
  Budget spend;  ///< by the prices of nodes
  /// What is used in time is bounded.
  bool HasBudgets() const { return device_hours.most > 0 || spend.most > 0; }
  bool operator==(const Quota&) const = default;
};

/// The operator's bounds, by name and for those that have none of their own.
struct Quotas {
  Quota user;
  std::map<std::string, Quota> users;
  Quota project;
  std::map<std::string, Quota> projects;
  bool operator==(const Quotas&) const = default;

  const Quota& OfUser(const std::string& name) const;
  const Quota& OfProject(const std::string& name) const;
  /// Of "user ada" or "project vision".
  const Quota& OfAccount(const std::string& account) const;
  /// Any of them bounds what is used in time.
  bool HasBudgets() const;
};

/// Why an account may start nothing more for now: it has used what it may in a period.
struct UsedUp {
  bool spend = false;  ///< what was spent; else device-hours
  double used = 0;
  Budget budget;
  std::optional<WallTime> until;  ///< when the next period begins; nothing: never
};
/// Nothing where something is left. Of two the one that lasts longer.
std::optional<UsedUp> UsedUpOf(const Quota& quota, const Account& account, WallTime now);

/// One account with all that is known of it.
struct AccountUse {
  std::string account;  ///< "user ada"
  uint32_t devices = 0;
  uint32_t queued = 0;
  double recent_device_seconds = 0;  ///< that its turn depends on, with its share
  double share = 1;
  Account used;
  Quota quota;
};

/// Device-time that counts for less the longer ago it was.
struct Usage {
  double device_seconds = 0;  ///< at the time of `at`
  WallTime at;
  bool operator==(const Usage&) const = default;

  /// What is left of it: halved for each half-life that has passed. A clock that was set back changes
  /// nothing.
  double At(WallTime now, Duration half_life) const;
  void Add(double more, WallTime now, Duration half_life);
};

/// What of the cluster each is to have, beside the others: who has twice the share of another one waits no
/// longer than that one after twice the device-time. Those that are not named have a share of 1.
struct Shares {
  std::map<std::string, double> users;
  std::map<std::string, double> projects;
  bool operator==(const Shares&) const = default;

  /// Of "user ada" or "project vision".
  double OfAccount(const std::string& account) const;
};

/// The turn of an account among jobs of one rank, the lower the sooner: 0 for less than one device-hour, then
/// one more each time that it doubles. So who has had about as much as others waits by age alone.
uint32_t TurnOf(double device_seconds);

/// Of a job: first its project has to have had less, then, within one project, its user.
struct Turn {
  uint32_t project = 0;
  uint32_t user = 0;
  auto operator<=>(const Turn&) const = default;
};

}  // namespace imgd
