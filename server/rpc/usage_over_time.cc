#include "server/rpc/usage_over_time.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "server/core/budgets.h"

namespace imgd {
namespace {

constexpr int kMostEdges = 401;

Status CheckEdges(const v1::ListUsageOverTimeRequest& request) {
  const auto& edges = request.edges_us();
  if (edges.size() < 2 || edges.size() > kMostEdges) {
    return Fail(ErrorCode::kInvalidArgument, "edges_us: found {} times; 2 to {} are allowed", edges.size(),
                kMostEdges);
  }
  // Nor are two of them the same.
  if (std::adjacent_find(edges.begin(), edges.end(), std::greater_equal<>()) != edges.end())
    return Fail(ErrorCode::kInvalidArgument, "edges_us: each is later than the one before");
  return {};
}

int64_t EndOf(const StartUse& start, WallTime now) {
  return start.ended_us > 0 ? start.ended_us : now.micros;
}

/// Device-time, as far as it can be told from the history: what parts of a job's use are measured by.
double WeightOf(const StartUse& start, int64_t from, int64_t until) {
  return static_cast<double>(std::max<int64_t>(until - from, 0)) * std::max<uint32_t>(start.ranks, 1);
}

/// What a job took until now. One that runs is counted once a minute: what its last start took since then
/// comes on top, at the price of what was counted; where nothing was, its cost is not known. `starts` are of
/// one job.
Tally TakenBy(std::span<const StartUse> starts, WallTime now) {
  const StartUse& last = starts.back();
  Tally taken{.device_seconds = last.device_seconds, .cost = last.cost};
  if (last.ended_us > 0) return taken;
  const int64_t since_us = std::max(last.started_us, last.counted_us);
  const double seconds = static_cast<double>(std::max<int64_t>(now.micros - since_us, 0)) / 1e6 * last.ranks;
  if (taken.device_seconds > 0) taken.cost *= 1 + seconds / taken.device_seconds;
  taken.device_seconds += seconds;
  return taken;
}

}  // namespace

void SpreadUsage(std::span<const StartUse> starts, WallTime now, const v1::ListUsageOverTimeRequest& request,
                 v1::ListUsageOverTimeResponse& out) {
  const auto& edges = request.edges_us();
  std::map<std::string, v1::OwnerUsage> owners;
  for (size_t begin = 0; begin < starts.size();) {
    size_t end = begin;
    double whole = 0;
    const auto its_own = [&](const StartUse& start) {
      return start.job == starts[begin].job && start.job != JobId();
    };
    for (; end == begin || (end < starts.size() && its_own(starts[end])); ++end)
      whole += WeightOf(starts[end], starts[end].started_us, EndOf(starts[end], now));
    const auto its = starts.subspan(begin, end - begin);
    const Tally taken = TakenBy(its, now);
    for (const auto& start : its) {
      for (int i = 0; i + 1 < edges.size(); ++i) {
        const double weight =
            WeightOf(start, std::max(start.started_us, edges[i]), std::min(EndOf(start, now), edges[i + 1]));
        if (weight <= 0 || taken.device_seconds <= 0) continue;
        const double part = weight / whole;
        auto& owner = owners[start.owner];
        owner.mutable_device_hours()->Resize(edges.size() - 1, 0);
        owner.mutable_cost()->Resize(edges.size() - 1, 0);
        *owner.mutable_device_hours()->Mutable(i) += part * taken.device_seconds / 3600;
        *owner.mutable_cost()->Mutable(i) += part * taken.cost;
      }
    }
    begin = end;
  }
  for (auto& [name, owner] : owners) {
    owner.set_owner(name);
    *out.add_owners() = std::move(owner);
  }
}

Status FillUsageOverTime(const v1::ListUsageOverTimeRequest& request, WallTime now, Reader& reader,
                         v1::ListUsageOverTimeResponse& out) {
  IMGD_TRY(CheckEdges(request));
  IMGD_ASSIGN(const auto starts, reader.Starts(request.edges_us(0)));
  SpreadUsage(starts, now, request, out);
  return {};
}

}  // namespace imgd
