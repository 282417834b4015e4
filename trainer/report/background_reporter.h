#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainer/report/reporter.h"

namespace imgd::report {

/// Passes reports on to `reporter` from a thread of its own, in their order, so that nobody who reports waits
/// for a disk. What waits has a limit (64 MiB); what comes above it is left out, and `note` is told once, on
/// the thread that reports. Failed waits up to 0.4 s for what was reported before it, since the process ends
/// with it; others wait by Drain(). Notes are not passed on.
std::unique_ptr<Reporter> MakeBackgroundReporter(std::unique_ptr<Reporter> reporter,
                                                 std::function<void(const std::string&)> note);

}  // namespace imgd::report
