#pragma once

#include <vector>

#include "server/config.h"
#include "server/rpc/admin_service.h"

namespace imgd {

/// A key of imgd.yaml.
struct ConfigKey {
  const char* name;
  bool at_once;  ///< it can change while imgd runs
  bool (*same)(const ServerConfig& a, const ServerConfig& b);
  void (*take)(ServerConfig& to, const ServerConfig& from);
};

/// Each of them, in the order of deploy/imgd.yaml; what is below `tls` and `web` as one.
const std::vector<ConfigKey>& ConfigKeys();

/// Gives `config` what is another in `fresh`, of what can change while imgd runs, and says what that is.
ConfigChanges TakeChanges(ServerConfig& config, const ServerConfig& fresh);

}  // namespace imgd
