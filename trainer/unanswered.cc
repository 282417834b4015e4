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
constexpr int kManyAttempts = 4;

/// A rank that only waits to receive has nothing under way: it asks its peer's kernel once a second. The
/// kernel gives up such a connection after the most attempts that it allows, two minutes: the gang is judged
/// long before.
constexpr int kProbeAfterSeconds = 1;
constexpr int kProbeEverySeconds = 1;
constexpr int kMostProbes = 127;

void ProbeWhenIdle(int fd) {
  int on = 0;
  socklen_t size = sizeof on;
  if (::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size) != 0 || on != 0) return;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kProbeAfterSeconds, sizeof kProbeAfterSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kProbeEverySeconds, sizeof kProbeEverySeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kMostProbes, sizeof kMostProbes);
  on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/// How often what is under way, or where nothing is a probe, was sent without an answer; 0 where the
/// descriptor is no TCP connection.
int AttemptsOf(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state != TCP_ESTABLISHED)
    return 0;
  ProbeWhenIdle(fd);
  return info.tcpi_unacked > 0 ? info.tcpi_retransmits : info.tcpi_probes;
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
  int most = kManyAttempts - 1;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (const int count = AttemptsOf(fd); count > most) {
      most = count;
      worst = fd;
    }
  }
  return worst < 0 ? "" : PeerOf(worst);
}

}  // namespace imgd::trainer
