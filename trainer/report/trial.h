#pragma once

#include <cstdint>
#include <string>

namespace imgd::report {

/// A short all-reduce between all ranks, before they train.
struct Trial {
  uint64_t bytes = 0;  ///< of each rank
  double seconds = 0;  ///< of the fastest of a few
  int ranks = 1;
  int nodes = 1;

  /// What the slowest link between them carries at least, each way, as nccl-tests count it ("bus bandwidth"):
  /// 2 (n - 1) / n times the bytes pass it in a ring of n ranks.
  double BytesPerSecond() const;
  /// "all-reduce of 16 MiB across 2 nodes: 3.10 GB/s"; of ranks on one node: "between 4 ranks".
  std::string ToString() const;
};

}  // namespace imgd::report
