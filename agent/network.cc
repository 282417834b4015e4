#include "agent/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>

namespace imgd {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<AddressList> AddressesOf(const std::string& host, const std::string& port, int socket_type) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Fail(ErrorCode::kUnavailable, "cannot resolve the address '{}': {}", host, ::gai_strerror(error));
  }
  return AddressList(found, ::freeaddrinfo);
}

std::string ToText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* raw = address->sa_family == AF_INET6
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
                        : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  ::inet_ntop(address->sa_family, raw, text, sizeof text);
  return text;
}

/// The socket's own address.
std::optional<sockaddr_storage> NameOfSocket(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return std::nullopt;
  return name;
}

}  // namespace

std::optional<HostPort> SplitHostPort(const std::string& text, int least_port) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort out{text.substr(0, colon), text.substr(colon + 1)};
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  int port = -1;
  const char* end = out.port.data() + out.port.size();
  const auto parsed = std::from_chars(out.port.data(), end, port);
  if (out.host.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (port < least_port || port > 65535) return std::nullopt;
  return out;
}

Result<HostPort> ParseHostPort(const std::string& text) {
  if (auto parts = SplitHostPort(text, 1)) return std::move(*parts);
  return Fail(ErrorCode::kInvalidArgument,
              "server address '{}': HOST:PORT is expected, such as 10.0.0.5:7650", text);
}

Result<std::string> LocalAddressTowards(const std::string& server) {
  IMGD_ASSIGN(const HostPort where, ParseHostPort(server));
  IMGD_ASSIGN(const AddressList addresses, AddressesOf(where.host, where.port, SOCK_DGRAM));
  int error = 0;
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    const UniqueFd fd(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0) {
      if (const auto name = NameOfSocket(fd.get())) return ToText(reinterpret_cast<const sockaddr*>(&*name));
    }
    error = errno;
  }
  return FailErrno(error, fmt::format("there is no way to {}", server));
}

Error WantsTls(const std::string& server) {
  return {.code = ErrorCode::kFailedPrecondition,
          .message = fmt::format("imgd at {} wants TLS", server),
          .hint = "https:// before the address in server, and a join token (imgcli node join-token)"};
}

std::string InterfaceOf(const std::string& address) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, ::freeifaddrs);
  for (const ifaddrs* entry = all.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if ((family == AF_INET || family == AF_INET6) && ToText(entry->ifa_addr) == address)
      return entry->ifa_name;
  }
  return "";
}

Result<Listener> ListenOn(const std::string& address, const std::string& port) {
  IMGD_ASSIGN(const AddressList addresses, AddressesOf(address, port, SOCK_STREAM));
  Listener listener;
  listener.fd = UniqueFd(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd.valid() && port != "0") {
    // Connections that an earlier process closed don't hold the port; one that listens does.
    const int on = 1;
    ::setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (!listener.fd.valid() || ::bind(listener.fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(listener.fd.get(), 1024) != 0) {
    const int error = errno;
    const auto what = port == "0" ? fmt::format("cannot listen on this node's address {}", address)
                                  : fmt::format("cannot listen on port {} of {}", port, address);
    if (error == EADDRINUSE)
      return Fail(ErrorCode::kAlreadyExists, "{}: the port is in use by another program", what);
    // It may be one of an interface that comes up later.
    if (error == EADDRNOTAVAIL)
      return Fail(ErrorCode::kUnavailable, "{}: it is no address of this machine", what);
    return FailErrno(error, what);
  }
  const auto name = NameOfSocket(listener.fd.get());
  if (!name) return FailErrno(errno, "cannot tell the port of a socket");
  // The port stands at the same place in sockaddr_in and sockaddr_in6.
  listener.port = ntohs(reinterpret_cast<const sockaddr_in*>(&*name)->sin_port);
  return listener;
}

}  // namespace imgd
