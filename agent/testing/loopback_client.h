#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "common/files.h"

namespace imgd {

/// One TCP connection to a server on 127.0.0.1, that never waits for it.
class LoopbackClient {
 public:
  explicit LoopbackClient(uint32_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd_.reset();
  }

  bool connected() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  void Send(std::string_view text) const {
    (void)!::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// Takes what has come, at most `most_bytes`; true when the server has ended the connection.
  bool Take(size_t most_bytes = 64 << 10) {
    std::string buffer(most_bytes, '\0');
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) received_.append(buffer, 0, static_cast<size_t>(n));
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }
  const std::string& received() const { return received_; }

 private:
  UniqueFd fd_;
  std::string received_;
};

/// The whole answer of a server in another process; what has come of it, if it takes longer than any test
/// should.
inline std::string HttpGet(uint32_t port, std::string_view target) {
  LoopbackClient client(port);
  client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  pollfd waiting{client.fd(), POLLIN, 0};
  while (!client.Take() && ::poll(&waiting, 1, 60'000) > 0) {
  }
  return client.received();
}

}  // namespace imgd
