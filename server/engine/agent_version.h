#pragma once

#include <string_view>

#include "common/error.h"

namespace imgd {

/// Whether an imgd of one version works with an agent of another, each as "MAJOR.MINOR.PATCH", whatever
/// follows that: it does with those of its own minor version and of the one before; that of the first of a
/// major version is the whole major version before. A version without such numbers, as tests have, is taken.
/// Errors: kFailedPrecondition, with words for both sides' people and what to install.
Status CheckAgentVersion(std::string_view imgd, std::string_view agent);

}  // namespace imgd
