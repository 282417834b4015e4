#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/job_file.h"
#include "imgd/v1/job.pb.h"
#include "server/engine/engine.h"
#include "server/policy/policy.h"

/// From a request to submit to what the engine is asked, and back.
namespace imgd {

/// A submission that is fine as far as its files go.
struct CheckedSubmit {
  SubmitOrder order;
  std::string first_file;  ///< the job's; of a sweep, its first job's
  std::vector<std::string> warnings;
};

/// What the operator says of jobs.
struct JobRules {
  const Policies& policies;
  const std::string& checkpoint_dir;  ///< of jobs that name none
  bool commands = false;              ///< jobs may be any program
  const std::set<std::string>& notify_targets;
};

/// The request's file name, or one for messages.
std::string FileNameOf(const v1::SubmitJobRequest& request);

/// `spec` is of the request, which is within its limits. Of a sweep all jobs are made and checked, which
/// takes up to seconds. Errors: each with its place, or the sweep's job that has it.
tl::expected<CheckedSubmit, std::vector<Error>> CheckSubmit(const v1::SubmitJobRequest& request, JobSpec spec,
                                                            const ClusterView& view, JobRules rules,
                                                            WallTime now);

/// Of a request that CheckSubmit() refuses: nothing is stored, but what was stored of it before is found by
/// its key. The rules and the data sets may have been others then.
SubmitOrder OrderOfKnown(const v1::SubmitJobRequest& request, Error refusal);

/// What the engine refuses, with its place in the request's file where it is of one of the file's fields.
Error PlacedInFile(const v1::SubmitJobRequest& request, Error error);

/// What would be stored; of a sweep also what its jobs differ in.
void FillDryRun(const SubmitOrder& order, v1::SubmitJobResponse& out);

}  // namespace imgd
