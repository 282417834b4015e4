#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "common/job_file.h"
#include "common/sweep_spec.h"

namespace imgd {

/// A job of a sweep.
struct SweepMember {
  std::vector<SweepValue> values;  ///< that make it differ from the others
  JobSpec spec;                    ///< its text is the sweep's file with the values set, and without `sweep`
};

/// The members, each checked as any job file. `spec` is of `text`, with a sweep. Errors: all of the first
/// member that has some, each of which says which member it is.
tl::expected<std::vector<SweepMember>, std::vector<Error>> MakeSweepMembers(const std::string& text,
                                                                            const std::string& file,
                                                                            const JobSpec& spec);

}  // namespace imgd
