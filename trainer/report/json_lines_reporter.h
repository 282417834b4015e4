#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "trainer/report/scalar_reporter.h"

namespace imgd::report {

/// Reports the figures of training and validation as JSON, an object a line, in `metrics.g<generation>.jsonl`
/// (docs/metrics.md has the keys). An existing file goes on, without what a crash left of its last line. For
/// rank 0 alone. `note` as for MakeScalarReporter(); `clock` must outlive it.
std::unique_ptr<Reporter> MakeJsonLinesReporter(FiguresPlace place, const Clock& clock,
                                                std::function<void(const std::string&)> note);

}  // namespace imgd::report
