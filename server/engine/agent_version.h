#pragma once

#include <string_view>

#include "common/error.h"

namespace imgd {

/// Whether an imgd of one version works with an agent of another, as FitOf() says. Errors:
/// kFailedPrecondition, with words for both sides' people and what to install.
Status CheckAgentVersion(std::string_view imgd, std::string_view agent);

}  // namespace imgd
