#pragma once

#include <string>

#include "imgd/v1/job.pb.h"
#include "server/core/reactor.h"
#include "server/engine/engine.h"

/// What the cluster says of a job's future.
namespace imgd {

/// When a queued job will probably start.
void FillForecast(const ClusterView& view, Now now, v1::Job& job);

/// What would be stored, whether it would start at once, and else what it would wait for and until when.
/// Errors: kResourceExhausted where it would be refused for a quota.
Status FillDryRun(const Submission& submission, const std::string& yaml, const ClusterView& view,
                  const Quotas& quotas, Now now, v1::Job& out);

}  // namespace imgd
