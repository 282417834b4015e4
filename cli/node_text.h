#pragma once

#include <string>

#include "cli/output.h"
#include "imgd/v1/node.pb.h"

namespace imgd::cli {

/// "ready", "disconnected", "cordoned", "draining" (something runs there yet), "drained", "lost, drained",
/// "set aside" (by imgd), "sick" (a health check fails); jobs' states are in capitals, nodes' are not.
std::string NodeStateText(const v1::Node& node);
Style NodeStyle(const v1::Node& node);

/// Its agent tells what it does now.
bool IsConnected(const v1::Node& node);

/// New runs may be placed there: it is not out of reach, set aside, sick or about to go.
bool IsUsable(const v1::Node& node);

}  // namespace imgd::cli
