#pragma once

#include <boost/container/flat_map.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/room.h"
#include "server/core/scheduler.h"

namespace imgd {

/// What accounts may still have, while a plan or a forecast gives it to one job after the other.
class Allowances {
 public:
  /// `cluster`, and all jobs that are asked about, must outlive it.
  explicit Allowances(const Snapshot& cluster);

  /// One of the job's accounts may not have so many devices more.
  bool Lack(const QueuedJob& job, uint32_t devices);
  /// The job has them from now on.
  void Count(const QueuedJob& job, uint32_t devices);
  /// What the job could still have; nothing where none of its accounts has a quota of devices.
  std::optional<QuotaLeft> LeftFor(const QueuedJob& job) const;
  /// Devices that these parts take, with those of whole nodes that no rank has.
  uint32_t DevicesOf(const std::vector<Part>& parts) const;

  /// The same job, kept off nodes that would take it above its quotas; nothing where there are none. Else
  /// such nodes would be reserved and others preempted for it, over and over, and it never start. Said by a
  /// size that there is, so that many jobs ask for the same.
  std::optional<QueuedJob> Within(const QueuedJob& job);
  /// Whether nodes that are not lost could hold it with what its quotas have left, if all were free.
  bool LeaveRoomFor(const QueuedJob& job, Room& room);
  /// Where the job goes: on as many nodes as there are, of those that it takes, and as the quotas allow; at
  /// least on those that it needs.
  std::optional<std::vector<Part>> FindIn(Room& room, const QueuedJob& job);

  /// What its accounts have left is for this job, which has to wait for more: their later, smaller ones would
  /// keep it waiting for ever. Not where one of them may start nothing at all: that can last for weeks; nor
  /// where only lost nodes would complete it: they may never return. Nor what its project has left while its
  /// user has too little: the project's others would wait for what it cannot use. (What its user has left is
  /// kept while it waits for its project, or it would have both only by chance.) True where it can start some
  /// day.
  bool KeepFor(const QueuedJob& job, Room& room);

 private:
  using Of = std::vector<Allowance*>;
  const Of& OfJob(const QueuedJob& job);
  uint32_t MostOnEach(const QueuedJob& job, bool left);

  const Snapshot& cluster_;
  std::map<std::string, Allowance> known_;
  std::set<uint32_t> sizes_;  ///< how many devices there are on a node
  /// By the place of the job's accounts. Asked for each job: a row in memory, not a tree.
  boost::container::flat_map<const AccountNames*, Of> of_job_;
};

}  // namespace imgd
