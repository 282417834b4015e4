#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::cli {

/// Every error of an input, in its order; never empty where it stands for a failure.
using Errors = std::vector<Error>;

/// A value, or every reason why there is none.
template <typename T>
using Reply = tl::expected<T, Errors>;

/// Value of an environment variable; empty when it is not set.
using Environment = std::function<std::string(const char* name)>;

/// Where the daemon is, and who said so.
struct ServerAddress {
  std::string target;  ///< "host:port", as gRPC takes it
  std::string
      source;  ///< "from --server", "from IMGD_SERVER", "the default": follows the address in messages
  bool tls = false;
  std::string ca = {};     ///< certificates that it is known by, PEM; empty: the system's
  std::string token = {};  ///< to show with each call; empty: none
};

/// `HOST`, `HOST:PORT` or `[V6]:PORT`, without a scheme; without a port it is 7650. Errors: kInvalidArgument.
Result<std::string> ParseServerAddress(std::string_view text);

/// Path of the user's configuration file, whether it exists or not; empty without a home.
std::string UserConfigPath(const Environment& env);

/// The daemon's address: `flag` (empty: not given), then IMGD_SERVER, then `server:` in the user's file, then
/// that of the last login, then 127.0.0.1:7650; with what AddCredentials (cli/credentials.h) knows of it.
/// https:// and http:// before it say whether it is TLS; without them it is on every address but loopback
/// ones, and on those that one has logged in to. Errors: kInvalidArgument with the place for what is wrong in
/// the file.
Reply<ServerAddress> ResolveServer(const std::string& flag, const Environment& env);

/// `models:` in the user's file, the folder of the model registry; empty where it does not say. Errors:
/// kInvalidArgument with the place for what is wrong in it.
Reply<std::string> ModelsInConfig(const Environment& env);

/// Name that jobs are submitted under: USER, LOGNAME, or the login name of the process's user; in UTF-8,
/// whatever bytes it has.
std::string OwnerName(const Environment& env);

}  // namespace imgd::cli
