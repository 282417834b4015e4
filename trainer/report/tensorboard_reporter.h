#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "trainer/report/scalar_reporter.h"

namespace imgd::report {

/// Reports the figures of training and validation to TensorBoard (docs/metrics.md has the tags), by a file of
/// this run's in `place`. For rank 0 alone. `note` as for MakeScalarReporter(); `clock` must outlive it.
std::unique_ptr<Reporter> MakeTensorboardReporter(FiguresPlace place, const Clock& clock,
                                                  std::function<void(const std::string&)> note);

}  // namespace imgd::report
