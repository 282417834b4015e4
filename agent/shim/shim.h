#pragma once

#include <filesystem>

namespace imgd {

/// What `imgagent-shim` is called with.
struct ShimOptions {
  std::filesystem::path run_dir;
  int master_fd = -1;  ///< inherited listening socket for rank 0; -1 for none
  int lock_fd = -1;    ///< inherited lock on shim.lock, kept until the shim ends
};

/// Starts the ranks of the run in `run_dir` and looks after them until no process of the run is left.
///
/// Returns in the calling process as soon as the shim, which is then a process of its own, listens on
/// shim.sock: 0, or 1 with the reason on standard error. In the shim's own process it does not return.
/// Call from a single-threaded process.
int ShimMain(const ShimOptions& options);

}  // namespace imgd
