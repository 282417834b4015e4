#pragma once

#include <string>
#include <vector>

#include "imgd/v1/job.pb.h"
#include "server/engine/engine.h"
#include "server/store/reader.h"

/// Of jobs that others hold back: what is the matter with these.
namespace imgd {

/// Adds to the reason of a queued job what keeps those that it waits for: other jobs that are paused or could
/// never start, members of its sweep whose turn it is and that wait themselves, and who has the devices of
/// its quotas or waits for them before it. A reason that is stored is of when it began to wait. Errors: the
/// reader's.
Status ExplainWhoHoldsItBack(const JobRecord& record, const ClusterView& view, Reader& reader, v1::Job& out);

/// Of the jobs that one comes after, those that will not end by themselves, and why: "job 12 (pre) is paused
/// (...)"; three at most.
struct Standing {
  std::vector<std::string> texts;
  bool never = false;  ///< one of them could never start, or not any more
};
Result<Standing> StandingOf(const std::vector<Dependency>& after, Reader& reader);
/// Before what else there is to say of a job that is not stored.
void AddStanding(const Standing& standing, v1::Job& out);

}  // namespace imgd
