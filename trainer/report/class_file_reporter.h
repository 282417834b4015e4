#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainer/report/scalar_reporter.h"

namespace imgd::report {

/// Writes `classes.step<step>.json` (ToJson() of ClassFigures) into the place's folder after each validation
/// pass; a pass that is done again replaces the file. `note` as for MakeScalarReporter().
std::unique_ptr<Reporter> MakeClassFileReporter(FiguresPlace place,
                                                std::function<void(const std::string&)> note);

}  // namespace imgd::report
