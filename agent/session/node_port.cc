#include "agent/session/node_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace imgd {
namespace {

/// 0 when the connection stands, else an errno; ECANCELED when `cancel` is readable first.
int AwaitConnection(int fd, int cancel, Duration patience) {
  const Instant give_up = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ETIMEDOUT;
    std::array<pollfd, 2> fds = {{{fd, POLLOUT, 0}, {cancel, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return errno;
    if (fds[1].revents != 0) return ECANCELED;
    if (fds[0].revents == 0) continue;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }
}

}  // namespace

Result<UniqueFd> ConnectToPort(uint32_t port, int cancel, Duration patience) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int error = fd.valid() ? 0 : errno;
  if (error == 0 && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    error = errno == EINPROGRESS ? AwaitConnection(fd.get(), cancel, patience) : errno;
  if (error == 0) return fd;
  if (error == ECANCELED)
    return Fail(ErrorCode::kCancelled, "port {} had not answered when the session ended", port);
  if (error == ETIMEDOUT) {
    return Fail(ErrorCode::kUnavailable, "port {} of the node's 127.0.0.1 did not answer within {} s", port,
                std::chrono::ceil<std::chrono::seconds>(patience).count());
  }
  return FailErrno(error, fmt::format("cannot connect to port {} of the node's 127.0.0.1", port));
}

}  // namespace imgd
