#pragma once

#include <filesystem>
#include <optional>

#include "trainer/commands.h"
#include "trainer/environment.h"
#include "trainer/loop/step_clock.h"
#include "trainer/report/reporter.h"

namespace imgd::trainer {

/// Profiles some steps by LibTorch's own profiler (Kineto), where somebody asks for it. The training
/// thread's. Costs nothing while nobody does.
class StepProfiler {
 public:
  /// All must outlive it. `folder` is where profiles go that are asked for while the run is on.
  StepProfiler(at::Device device, const Environment& env, std::filesystem::path folder, StepClock& clock,
               report::Reporter& reporter)
      : device_(device), env_(env), folder_(std::move(folder)), clock_(clock), reporter_(reporter) {}

  /// Before step `step` (from 0): begins where one was asked for, by the environment (`profile`) or by
  /// `commands`.
  void BeforeStep(uint64_t step, Commands& commands);
  /// After it: ends after the steps that were asked for and writes a Chrome trace, and beside it under the
  /// same name and `.txt` a table of the costliest operators and of where the steps' time went. What can't be
  /// written is said. `is_last` step of the run: ends now.
  void AfterStep(bool is_last);

 private:
  struct Running {
    std::filesystem::path trace;
    uint64_t first = 0;
    uint64_t done = 0;
    uint64_t wanted = 0;
    StepClock::Times before;
  };
  void Begin(std::filesystem::path trace, uint64_t first, uint64_t steps, bool kernels_only = false);
  Status End();

  const at::Device device_;
  const Environment& env_;
  const std::filesystem::path folder_;
  StepClock& clock_;
  report::Reporter& reporter_;
  std::optional<Running> running_;
};

}  // namespace imgd::trainer
