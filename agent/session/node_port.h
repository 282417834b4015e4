#pragma once

#include <cstdint>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// How long a port of the node's own may take to answer.
inline constexpr Duration kConnectPatience = std::chrono::seconds(10);

/// A connection, which does not block, to a port of this node's 127.0.0.1. `cancel`: readable once nobody
/// wants it any more; -1: somebody always does. Errors: kUnavailable when nobody answers in time; kCancelled.
Result<UniqueFd> ConnectToPort(uint32_t port, int cancel, Duration patience = kConnectPatience);

}  // namespace imgd
