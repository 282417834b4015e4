#pragma once

#include <functional>

namespace imgd::trainer {

/// Blocks SIGTERM and SIGINT in this thread and those it starts later, and ignores SIGPIPE. Call first in
/// main().
void BlockEndingSignals();

/// Starts a thread that waits for SIGTERM and SIGINT for the rest of the process. On one it calls
/// `on_signal(number)` and ends the process at once with 128 + number, whatever other threads do (in mid-step
/// too). `on_signal` runs on that thread and must not wait for long.
void EndOnSignals(std::function<void(int)> on_signal);

}  // namespace imgd::trainer
