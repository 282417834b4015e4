#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "server/auth/authority.h"

namespace imgd {
namespace {

/// As certificates have them; empty where it is no address.
std::string CanonicalAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, host.c_str(), bytes.data()) != 1) continue;
    return ::inet_ntop(family, bytes.data(), text.data(), text.size());
  }
  return "";
}

std::string HostNameOfMachine() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::set<std::string> NamesOfMachine(const std::vector<std::string>& given) {
  std::set<std::string> names = {"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
  const auto add = [&names](std::string name) {
    if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
    if (name == "0.0.0.0" || name == "::") return;
    // What stands in a list with commas and colons must have none of its own.
    const bool plain =
        !name.empty() && name.size() <= 253 && name.find_first_of(",;= \t\"\\") == std::string::npos;
    if (!plain) return;
    const std::string address = CanonicalAddress(name);
    names.insert(address.empty() ? "DNS:" + name : "IP:" + address);
  };
  add(HostNameOfMachine());
  for (const auto& name : given) add(name);
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return names;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(interfaces, &::freeifaddrs);
  constexpr size_t kMostNames = 64;
  for (const auto* at = interfaces; at != nullptr && names.size() < kMostNames; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (at->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    }
    add(text.data());
  }
  return names;
}

}  // namespace imgd
