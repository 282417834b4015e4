#pragma once

#include <set>
#include <utility>
#include <vector>

#include "server/core/actions.h"

namespace imgd::sim {

class World;

/// What one commit of the daemon changed.
struct Batch {
  const Actions& actions;
  const std::vector<JobId>& touched;
  bool nodes_touched = false;
};

/// A rule that holds after every event. A new one is a function and a row in the table in invariants.cc.
struct Invariant {
  const char* name;
  void (*check)(World& world, const Batch& batch, const char* name);
};
const std::vector<Invariant>& Invariants();

/// Checks them all after a commit, then notes in the ledger what it changed. Breaks are told to the world.
void Check(World& world, const Batch& batch);
/// The same of all that there is, with no commit; the rules too that look at one commit of many.
void CheckAtTheEnd(World& world);

// By file; see the rules there.
const std::vector<Invariant>& JobInvariants();
const std::vector<Invariant>& QueueInvariants();
const std::vector<Invariant>& ElasticInvariants();

const std::vector<Invariant>& WaitInvariants();

/// The job is held back from the queue, and the reason that its record has is so.
bool IsHeldBackRightly(const World& world, const JobRecord& job);
const std::vector<Invariant>& RetryInvariants();
const std::vector<Invariant>& NoticeInvariants();
const std::vector<Invariant>& QuotaInvariants();
const std::vector<Invariant>& PeopleInvariants();
const std::vector<Invariant>& PreemptionInvariants();
const std::vector<Invariant>& PlaceInvariants();

/// Devices of the part's node that nobody else gets: of a whole node all of them.
std::vector<uint32_t> DevicesOf(const World& world, const Part& part);
/// Some node's device is in both.
bool SharesDevices(const World& world, const std::vector<Part>& some, const std::vector<Part>& others);

/// The job's start may be called by this event, which is not undone in the same commit.
const JobRecord* StartedBy(const World& world, const Action& action);

/// One of its accounts may have used what it may in a period, so that the job keeps nothing by being not
/// preemptible.
bool MayBeAboveQuota(const World& world, const JobRecord& job);
/// Its accounts may not have enough for it, however many devices are free: its code is true.
bool LacksQuota(const World& world, const JobRecord& job);
/// The most devices of a node that the job may have for itself, by its quotas.
uint32_t MostOfAWholeNode(const World& world, const JobRecord& job);
/// Nothing that ends or is given back would help, but the end of a period.
bool MayNeverHave(const World& world, const JobRecord& job);
/// A quota of any kind may keep the job from having more devices.
bool HasQuotas(const World& world, const JobRecord& job);

/// The run ended because somebody, or a job of a higher priority, asked its devices back: no failure.
bool IsGivenBack(ReasonCode code);

/// In this commit its run was over that had been ended so that the job goes on with more nodes.
bool EndedToGrow(const Batch& batch, JobId job);

/// Whether all nodes of the gang have to see one storage.
bool IsTied(const World& world, const JobRecord& job);

/// Whether the gang fits into the nodes, each with so many devices, counted without the core's help: all its
/// nodes see one storage, which is the one of its checkpoints where it has some.
struct Space {
  const NodeRecord* node = nullptr;
  uint32_t devices = 0;
};
/// A part of the gang could be on the node, of which so many devices are free.
bool HasRoomOn(const World& world, const JobRecord& job, const Space& node);
/// The same where the job's needs are at hand, for who asks of many nodes.
bool HasRoomOn(const Needs& needs, const JobRecord& job, const Space& node);
bool Fits(const World& world, const JobRecord& job, const std::vector<Space>& space);
/// The devices that jobs which end so that they can grow are to have besides their own: nobody else gets
/// them.
std::set<std::pair<NodeId, uint32_t>> KeptForGrowth(const World& world);
/// What is to be seen of all nodes in a check; they are gone through once.
struct NodesNow {
  uint64_t check = 0;
  std::vector<Space> space;  ///< as FreeSpace() has it
  bool all_there = true;     ///< each can be used
  /// Of all nodes with what they have, by name, and whether they can be used: a promise is of these.
  uint64_t digest = 0;
};
/// Good until the next check.
const NodesNow& LookAtNodes(World& world);
/// The devices on nodes that can be used and that nobody holds, by name. Good until the next check.
const std::vector<Space>& FreeSpace(World& world);
/// All can be used now.
bool AllNodesAreThere(World& world);

}  // namespace imgd::sim
