#include "trainer/unanswered.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>

namespace imgd::trainer {
namespace {

/// So often data are sent again in about three seconds; one lost packet is sent again once.
constexpr int kManyRetransmits = 4;

/// How often what is under way was sent again; 0 where the descriptor is no TCP connection.
int RetransmitsOf(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_unacked > 0 ? info.tcpi_retransmits : 0;
}

std::string PeerOf(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, text, sizeof text);
  } else if (peer.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
      ::inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &address, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

std::string UnansweredPeer() {
  int worst = -1;
  int most = kManyRetransmits - 1;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (const int count = RetransmitsOf(fd); count > most) {
      most = count;
      worst = fd;
    }
  }
  return worst < 0 ? "" : PeerOf(worst);
}

}  // namespace imgd::trainer
