#pragma once

#include <functional>

namespace imgd::trainer {

/// Ends the process with `code` after half a second, whatever its threads do; returns at once.
void EndAfterTimeToReport(int code);

/// Blocks SIGTERM and SIGINT in this thread and those it starts later, and ignores SIGPIPE. Call first in
/// main().
void BlockEndingSignals();

/// Starts a thread that waits for SIGTERM and SIGINT for the rest of the process. On one that
/// `goes_on(number)` is not true of it calls `on_end(number)` and ends the process at once with 128 + number,
/// whatever other threads do (in mid-step too). Both run on that thread; `on_end` is not waited for longer
/// than half a second.
void EndOnSignals(std::function<bool(int)> goes_on, std::function<void(int)> on_end);

}  // namespace imgd::trainer
