#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "server/auth/tokens.h"

namespace imgd {

/// What each call needs, by whichever way it comes: "imgd.v1.JobService/GetJob" -> kView. All that imgd
/// serves by gRPC is in it; a test walks the descriptors and fails for a call that is not.
const std::map<std::string_view, Scope>& MethodScopes();

/// Of one of them, also with a '/' before it, as gRPC has it. What is not in the table needs kAdmin.
Scope ScopeOfMethod(std::string_view method);

}  // namespace imgd
