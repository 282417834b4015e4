#pragma once

#include <string>
#include <vector>

#include "imgd/v1/job.pb.h"
#include "server/core/reactor.h"
#include "server/engine/engine.h"

/// What the cluster says of a job's future.
namespace imgd {

/// When a queued job will probably start, also where others have to end or a time has to come first.
void FillForecast(const JobRecord& record, const ClusterView& view, Now now, v1::Job& out);

/// Of a job that is not stored: whether it would start at once, and else what it would wait for and until
/// when. Of one that comes after others or not before a time: when, or that it asks for more than it may have
/// or than there is. Its `after` is known to the engine. False where the cluster would have to be another one
/// first: for more nodes, or a larger quota. Nodes that are away or set aside may come back.
bool FillProspect(const Submission& submission, const ClusterView& view, const Quotas& quotas, Now now,
                  v1::Job& out);

/// Of the accounts of a job that is not stored, those whose quota may be too small for it, whatever ends:
/// none of most jobs. "user ada".
std::vector<std::string> AccountsInTheWay(const Submission& submission, const ClusterView& view);

/// Why such a job could never start by its quota, as FillProspect() says it; empty where it could.
std::string WhyQuotaForbids(const Submission& submission, const ClusterView& view);

}  // namespace imgd
