#pragma once

#include <functional>

namespace imgd::trainer {

/// Ends the process with `code` after half a second, whatever its threads do; returns at once.
void EndAfterTimeToReport(int code);

/// Blocks SIGTERM and SIGINT in this thread and those it starts later, and ignores SIGPIPE. Call first in
/// main().
void BlockEndingSignals();

/// Starts a thread that waits for SIGTERM and SIGINT for the rest of the process. On one it calls
/// `on_signal(number)` and ends the process at once with 128 + number, whatever other threads do (in mid-step
/// too). `on_signal` runs on that thread; it is not waited for longer than half a second.
void EndOnSignals(std::function<void(int)> on_signal);

}  // namespace imgd::trainer
