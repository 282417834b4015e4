#pragma once

#include <string>
#include <string_view>

#include "server/core/types.h"

namespace imgd {

/// Crashes in one place, running and without progress between, after which another start is not tried.
inline constexpr uint32_t kMostCrashesInPlace = 3;

/// Somebody outside sent it: SIGHUP, SIGINT, SIGKILL, SIGTERM. Such an end is no crash.
bool IsFromOutside(int signal);

/// The line with every word that has a digit in it as '#', and cut: what stays the same when the same thing
/// happens again.
std::string Normalised(std::string_view line);

/// Where the rank crashed: how it ended, the step and what it did in it, and what it said, normalised; equal
/// for two crashes in the same place, on whichever rank and node. Empty where that is not known, and for a
/// rank that IsFromOutside() ended. `failure`: what its trainer said; may be null.
std::string CrashPlace(const RankExit& exit, int signal, const RankFailure* failure);

/// What becomes of the job's crashes after one in that place on that node; an empty place is never the same
/// again, an empty node is nobody's, or one that is at fault itself. Without a place: it failed there by what
/// is not its own fault.
Crashes After(Crashes crashes, std::optional<std::string> place, const NodeId& node);

/// ", each time on a" or ", on a, b"; empty where nobody knows.
std::string OnNodes(const Crashes& crashes);

}  // namespace imgd
