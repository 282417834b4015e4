#pragma once

#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::sim {

/// A job of a trace in the Standard Workload Format, version 2.2
/// (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html): a line of 18 numbers, of which these matter
/// here.
struct SwfJob {
  int64_t number = 0;       ///< field 1
  double submit_s = 0;      ///< field 2
  double run_s = 0;         ///< field 4
  uint32_t processors = 0;  ///< field 8, requested; where it is -1 field 5, allocated
  double requested_s = -1;  ///< field 9, that it may run; -1 where nobody said
};

struct SwfTrace {
  uint32_t nodes = 0;        ///< "; MaxNodes:"; 0 where it is not given
  uint32_t processors = 0;   ///< "; MaxProcs:"
  std::vector<SwfJob> jobs;  ///< by time of submission; those that never ran are left out
};

/// Errors: kNotFound, and kInvalidArgument with the line.
Result<SwfTrace> ReadSwf(const std::string& path);

/// A trace shaped like that of a GPU cluster; see the figures there. So many jobs come after its beginning,
/// when others run already; `load`: what they would use of the cluster until the last one comes, if each
/// began as it came. The same seed gives the same text. `jobs`: at least 1.
std::string GenerateSwf(uint64_t seed, uint32_t jobs, double load = 0.95);

}  // namespace imgd::sim
