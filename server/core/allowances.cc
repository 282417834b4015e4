#include "server/core/allowances.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace imgd {
namespace {

/// Of one that has a number of devices.
uint32_t LeftOf(const Allowance& allowance) {
  return allowance.devices - std::min(allowance.used, allowance.devices);
}

}  // namespace

Allowances::Allowances(const Snapshot& cluster)
    : cluster_(cluster), known_(cluster.allowances.begin(), cluster.allowances.end()) {
  for (const auto& node : cluster.nodes) sizes_.insert(static_cast<uint32_t>(node.devices.size()));
}

/// Those that there are.
auto Allowances::OfJob(const QueuedJob& job) -> const Of& {
  const auto [known, is_new] = of_job_.try_emplace(job.accounts.place());
  for (size_t i = 0; is_new && i < job.accounts->size(); ++i) {
    const auto allowance = known_.find((*job.accounts)[i]);
    if (allowance != known_.end()) known->second.push_back(&allowance->second);
  }
  return known->second;
}

bool Allowances::Lack(const QueuedJob& job, uint32_t devices) {
  const Of& of = OfJob(job);
  return std::any_of(of.begin(), of.end(),
                     [devices](const Allowance* allowance) { return !allowance->Has(devices); });
}

void Allowances::Count(const QueuedJob& job, uint32_t devices) {
  for (Allowance* const allowance : OfJob(job)) allowance->used += devices;
}

std::optional<QuotaLeft> Allowances::LeftFor(const QueuedJob& job) const {
  std::optional<QuotaLeft> least;
  for (const auto& account : *job.accounts) {
    const auto allowance = known_.find(account);
    if (allowance == known_.end() || allowance->second.devices == 0) continue;
    const uint32_t left = LeftOf(allowance->second);
    if (!least || left < least->devices) least = {account, left};
  }
  return least;
}

uint32_t Allowances::DevicesOf(const std::vector<Part>& parts) const {
  size_t devices = 0;
  for (const auto& part : parts)
    devices += part.whole ? cluster_.NodeOf(part.node)->devices.size() : part.devices.size();
  return static_cast<uint32_t>(devices);
}

/// The most devices that each node of a gang may have that has them for itself, so that the gang stays within
/// its quotas: `left` of them, or all.
uint32_t Allowances::MostOnEach(const QueuedJob& job, bool left) {
  uint32_t most = std::numeric_limits<uint32_t>::max();
  for (const Allowance* const allowance : OfJob(job)) {
    if (allowance->devices == 0) continue;
    most = std::min(most, (left ? LeftOf(*allowance) : allowance->devices) / job.nodes);
  }
  return most;
}

std::optional<QueuedJob> Allowances::Within(const QueuedJob& job) {
  if (!job.needs->whole_nodes || known_.empty()) return std::nullopt;
  const auto too_large = sizes_.upper_bound(MostOnEach(job, true));
  if (too_large == sizes_.end()) return std::nullopt;
  QueuedJob within = job;
  within.most_devices = too_large == sizes_.begin() ? 0 : *std::prev(too_large);
  return within;
}

bool Allowances::LeaveRoomFor(const QueuedJob& job, Room& room) {
  return room.CouldHoldOnSmall(job, MostOnEach(job, true));
}

std::optional<std::vector<Part>> Allowances::FindIn(Room& room, const QueuedJob& job) {
  if (job.max_nodes <= job.nodes) return room.Find(job);
  QueuedJob sized = job;
  sized.nodes = std::min(room.MostNodes(job), job.max_nodes);
  for (; sized.nodes > job.nodes; --sized.nodes) {
    if (Lack(job, sized.nodes * job.ranks_per_node)) continue;
    auto parts = room.Find(sized);
    if (parts && !Lack(job, DevicesOf(*parts))) return parts;
  }
  return room.Find(job);
}

bool Allowances::KeepFor(const QueuedJob& job, Room& room) {
  uint32_t each = job.ranks_per_node;
  if (job.needs->whole_nodes) {
    const auto size = std::find_if(sizes_.begin(), sizes_.end(),
                                   [&](uint32_t most) { return room.CouldHoldOnSmall(job, most); });
    if (size == sizes_.end() || *size > MostOnEach(job, false)) return false;
    each = *size;
  } else if (!room.CouldHoldOnSmall(job, job.most_devices)) {
    return false;
  }
  const uint32_t devices = job.nodes * each;
  const Of& of = OfJob(job);
  const bool fits = std::all_of(
      of.begin(), of.end(), [devices](const Allowance* allowance) { return allowance->CouldHave(devices); });
  if (!fits) return false;
  const auto lacks = [devices](const Allowance* allowance) { return !allowance->Has(devices); };
  // Users come before projects (AccountsOf).
  const auto last = std::find_if(of.rbegin(), of.rend(), lacks);
  const auto end = last == of.rend() ? of.end() : last.base();
  std::for_each(of.begin(), end, [devices](Allowance* allowance) { allowance->used += devices; });
  return true;
}

}  // namespace imgd
