#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace imgd {

struct HostPort {
  std::string host;
  std::string port;
};

/// "host:port" or "[ipv6]:port". Errors: kInvalidArgument for anything else.
Result<HostPort> ParseHostPort(const std::string& text);

/// The address of this machine that packets to `server` ("host:port") leave from; nothing is sent.
/// Errors: when the name can't be resolved or there is no way there.
Result<std::string> LocalAddressTowards(const std::string& server);

/// Name of the network interface that has `address`; empty when none has.
std::string InterfaceOf(const std::string& address);

struct Listener {
  UniqueFd fd;
  uint32_t port = 0;
};

/// A TCP socket that listens on `address`, on a port that the system picks.
/// Errors: when the address is not one of this machine's.
Result<Listener> ListenOn(const std::string& address);

}  // namespace imgd
