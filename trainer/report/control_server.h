#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "common/error.h"

namespace imgd::report {

/// What the control socket can ask for. Called on the server's own thread; must return soon.
struct ControlHandlers {
  std::function<void()> checkpoint;
  std::function<void(bool checkpoint_first)> stop;
  std::function<void(uint32_t steps)> profile;
};

/// Serves `<run_dir>/control.<local_rank>`: framed TrainerCommand in, framed TrainerReply out
/// (proto/imgd/v1/trainer.proto), over any number of connections. Runs on a thread of its own until
/// destroyed.
class ControlServer {
 public:
  virtual ~ControlServer() = default;

  /// Replaces a socket file that an earlier process left. Errors: as the system calls, naming the path.
  static Result<std::unique_ptr<ControlServer>> Start(const std::filesystem::path& run_dir, int local_rank,
                                                      ControlHandlers handlers);
};

}  // namespace imgd::report
