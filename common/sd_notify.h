#pragma once

#include <optional>
#include <string_view>

#include "common/clock.h"

namespace imgd {

/// Tells systemd "READY=1", "WATCHDOG=1", "STATUS=..." by the socket in $NOTIFY_SOCKET; without one, does
/// nothing. Protocol: sd_notify(3). Thread-safe.
void SdNotify(std::string_view state);

/// Half of $WATCHDOG_USEC: how often "WATCHDOG=1" is due; nothing when no watchdog is set.
std::optional<Duration> SdWatchdogInterval();

}  // namespace imgd
