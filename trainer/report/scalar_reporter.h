#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/report/reporter.h"

namespace imgd::report {

/// Where the files of figures go.
struct FiguresPlace {
  std::filesystem::path folder;  ///< made with the first figure
  uint64_t generation = 0;       ///< of the run
};

/// One figure under the name that its curve has.
struct Scalar {
  std::string tag;  ///< "train/loss"
  double value = 0;
};

/// The figures of one report, all after the same step.
struct ScalarGroup {
  uint64_t step = 0;  ///< optimiser steps done
  double epoch = 0;   ///< epochs done, as a fraction
  std::vector<Scalar> scalars;
};

ScalarGroup ScalarsOf(const StepFigures& figures);
ScalarGroup ScalarsOf(const EpochFigures& figures);

/// A file of figures in some format. Used by one thread at a time.
class ScalarLog {
 public:
  virtual ~ScalarLog() = default;
  /// The run goes on after `step`; once, before the first figures.
  virtual void StartAfter(uint64_t step) = 0;
  /// What is written can be read when this returns. What can't be written is kept, within limits, and tried
  /// again with the next call. Errors: as the system calls, naming the path.
  virtual Status Add(const ScalarGroup& group) = 0;
  /// Pictures, where the format has them.
  virtual Status Add(const SampleFigures&) { return {}; }
  virtual Status Add(const ClassFigures&) { return {}; }
  /// Tries again to write what was kept.
  virtual Status Flush() = 0;
};

/// Passes the figures of training and validation on to `log`, and nothing else. A log that can't be written
/// is no reason to end: `note` is told why, once, on the thread that reports.
std::unique_ptr<Reporter> MakeScalarReporter(std::unique_ptr<ScalarLog> log,
                                             std::function<void(const std::string&)> note);

}  // namespace imgd::report
