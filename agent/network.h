#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace imgd {

struct HostPort {
  std::string host;
  std::string port;
};

/// The parts of "host:port" or "[ipv6]:port", with a port from `least_port` to 65535; nothing for anything
/// else.
std::optional<HostPort> SplitHostPort(const std::string& text, int least_port);

/// As above, for a server that is dialled: port 0 is none. Errors: kInvalidArgument.
Result<HostPort> ParseHostPort(const std::string& text);

/// The address of this machine that packets to `server` ("host:port") leave from; nothing is sent.
/// Errors: when the name can't be resolved or there is no way there.
Result<std::string> LocalAddressTowards(const std::string& server);

/// Of an imgd that an agent speaks to in plain text: what is wrong, and what to change.
Error WantsTls(const std::string& server);

/// Name of the network interface that has `address`; empty when none has.
std::string InterfaceOf(const std::string& address);

struct Listener {
  UniqueFd fd;
  uint32_t port = 0;
};

/// A TCP socket that listens on `address`, on `port`; "0": one that the system picks.
/// Errors: kInvalidArgument when the address is not one of this machine's, kAlreadyExists when another
/// program listens on the port.
Result<Listener> ListenOn(const std::string& address, const std::string& port = "0");

}  // namespace imgd
