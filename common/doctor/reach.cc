#include "common/doctor/reach.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/files.h"
#include "common/tls/probe.h"

namespace imgd::doctor {
namespace {

using std::chrono::milliseconds;

/// What a client of HTTP/2 begins with, and an empty frame of settings (RFC 9113, 3.4 and 6.5).
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr unsigned char kTlsAlert = 0x15;
constexpr unsigned char kSettingsFrame = 0x04;

std::string AddressText(const addrinfo& address) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool Await(int fd, short events, milliseconds limit) {
  pollfd waiting{.fd = fd, .events = events, .revents = 0};
  return ::poll(&waiting, 1, static_cast<int>(limit.count())) > 0;
}

/// 0, or errno.
int Connect(int fd, const addrinfo& address, milliseconds limit) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(fd, POLLOUT, limit)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Reach::Outcome OutcomeOf(int connect_error) {
  switch (connect_error) {
    case ECONNREFUSED:
      return Reach::Outcome::kRefused;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EACCES:
    case EPERM:
      return Reach::Outcome::kNoWay;
    default:
      return Reach::Outcome::kNoAnswer;
  }
}

/// What the other side makes of the beginning of HTTP/2.
Reach::Outcome Greet(int fd, milliseconds limit) {
  if (::send(fd, kPreface.data(), kPreface.size(), MSG_NOSIGNAL) < 0) return Reach::Outcome::kSilent;
  if (!Await(fd, POLLIN, limit)) return Reach::Outcome::kSilent;
  unsigned char answer[9] = {};
  const auto size = ::recv(fd, answer, sizeof answer, 0);
  if (size <= 0) return Reach::Outcome::kOtherWords;
  if (answer[0] == kTlsAlert) return Reach::Outcome::kAnswersTls;
  return size >= 4 && answer[3] == kSettingsFrame ? Reach::Outcome::kAnswers : Reach::Outcome::kOtherWords;
}

bool SpeaksTls(const std::string& server, milliseconds limit) {
  auto target = tls::TargetOf(server);
  target.timeout = limit;
  return tls::FetchChain(target).has_value();
}

void TryAddresses(const addrinfo* first, milliseconds limit, Reach& reach) {
  for (const auto* address = first; address != nullptr; address = address->ai_next) {
    const UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) continue;
    if (const int error = Connect(fd.get(), *address, limit); error != 0) {
      reach.outcome = OutcomeOf(error);
      reach.error = std::strerror(error);
      continue;
    }
    reach.outcome = Greet(fd.get(), limit);
    // gRPC's TLS ends a conversation in plain text without a word.
    if (reach.outcome == Reach::Outcome::kOtherWords && SpeaksTls(reach.server, limit))
      reach.outcome = Reach::Outcome::kAnswersTls;
    reach.error.clear();
    return;
  }
}

}  // namespace

Reach TryToReach(const std::string& server, milliseconds limit) {
  Reach reach{.server = server};
  const auto colon = server.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == server.size()) return reach;
  const auto target = tls::TargetOf(server);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); error != 0) {
    reach.outcome = Reach::Outcome::kNoName;
    reach.error = ::gai_strerror(error);
    return reach;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  for (const auto* one = found; one != nullptr; one = one->ai_next)
    reach.addresses.push_back(AddressText(*one));
  TryAddresses(found, limit, reach);
  return reach;
}

Verdict JudgeName(const Reach& reach) {
  switch (reach.outcome) {
    case Reach::Outcome::kBadAddress:
      return Fault(fmt::format("'{}' is no HOST:PORT", reach.server),
                   "name imgd by its host and port, such as gpu-head:7650 or [fd00::1]:7650");
    case Reach::Outcome::kNoName:
      return Fault(fmt::format("the name in {} can't be resolved: {}", reach.server, reach.error),
                   "check its spelling and /etc/resolv.conf, or give imgd's address");
    default:
      return Good(fmt::format("{} is {}", reach.server, fmt::join(reach.addresses, ", ")));
  }
}

Verdict JudgePort(const Reach& reach) {
  const auto& server = reach.server;
  switch (reach.outcome) {
    case Reach::Outcome::kBadAddress:
    case Reach::Outcome::kNoName:
      return Unknown("not tried, without an address");
    case Reach::Outcome::kAnswers:
      return Good(fmt::format("{} answers", server));
    case Reach::Outcome::kAnswersTls:
      return Good(fmt::format("{} answers, with TLS", server));
    case Reach::Outcome::kRefused:
      return Fault(fmt::format("nobody listens on {}", server),
                   "see whether imgd runs there (systemctl status imgd), and what listen in imgd.yaml says: "
                   "127.0.0.1 can be reached from its own machine only");
    case Reach::Outcome::kNoAnswer:
      return Fault(
          fmt::format("{} does not answer: {}", server, reach.error),
          "see whether the machine is up, and let TCP to that port through the firewalls on the way");
    case Reach::Outcome::kNoWay:
      return Fault(fmt::format("there is no way to {}: {}", server, reach.error),
                   "check this machine's addresses and routes (ip route get ADDRESS)");
    case Reach::Outcome::kSilent:
    case Reach::Outcome::kOtherWords:
      return Fault(
          fmt::format("what listens on {} is not imgd's gRPC", server),
          "imgd has its gRPC on 7650, and the dashboard on 7651, where it listens as its example says");
  }
  return Unknown("");
}

}  // namespace imgd::doctor
