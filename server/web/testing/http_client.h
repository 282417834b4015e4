#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string>

#include "common/files.h"

namespace imgd::web {

/// An answer as a test reads it.
struct TestAnswer {
  int status = 0;
  std::string head;  ///< status line and headers
  std::string body;
};

/// A connection to a plain server on the loopback that sends what a test says, well formed or not.
class TestConnection {
 public:
  /// `from`: the address of this end, an IPv4 one of the loopback; empty: any.
  explicit TestConnection(int port, const char* from = "")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // A test that hangs fails.
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (::inet_pton(AF_INET, from, &address.sin_addr) == 1)
      (void)::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }

  bool Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  /// The next answer; nothing when the server has ended the connection. That to HEAD has no body.
  std::optional<TestAnswer> Read(bool has_body = true) {
    size_t end = std::string::npos;
    while ((end = rest_.find("\r\n\r\n")) == std::string::npos) {
      if (!More()) return std::nullopt;
    }
    TestAnswer answer{.head = rest_.substr(0, end + 2)};
    rest_.erase(0, end + 4);
    std::from_chars(answer.head.data() + 9, answer.head.data() + answer.head.size(), answer.status);
    size_t length = 0;
    if (const size_t at = answer.head.find("Content-Length: "); has_body && at != std::string::npos)
      std::from_chars(answer.head.data() + at + 16, answer.head.data() + answer.head.size(), length);
    while (rest_.size() < length) {
      if (!More()) return std::nullopt;
    }
    answer.body = rest_.substr(0, length);
    rest_.erase(0, length);
    return answer;
  }

  /// Waits until the server ends the connection; false when it does not.
  bool ReadToEnd() {
    while (More()) {
    }
    return ended_;
  }

  /// `headers`: whole lines, each with its CRLF.
  std::optional<TestAnswer> Ask(const std::string& method, const std::string& target,
                                const std::string& body = "", const std::string& headers = "") {
    const std::string length = body.empty() ? "" : fmt::format("Content-Length: {}\r\n", body.size());
    const std::string host = headers.find("Host:") == std::string::npos ? "Host: localhost\r\n" : "";
    Send(fmt::format("{} {} HTTP/1.1\r\n{}{}{}\r\n{}", method, target, host, headers, length, body));
    return Read(method != "HEAD");
  }
  /// The next chunk of a chunked body; nothing when the server has ended the connection.
  std::optional<std::string> ReadChunk() {
    size_t end = std::string::npos;
    while ((end = rest_.find("\r\n")) == std::string::npos) {
      if (!More()) return std::nullopt;
    }
    size_t length = 0;
    std::from_chars(rest_.data(), rest_.data() + end, length, 16);
    while (rest_.size() < end + 2 + length + 2) {
      if (!More()) return std::nullopt;
    }
    std::string chunk = rest_.substr(end + 2, length);
    rest_.erase(0, end + 2 + length + 2);
    return chunk;
  }

  std::optional<TestAnswer> Get(const std::string& path) {
    Send(fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n\r\n", path));
    return Read();
  }
  std::optional<TestAnswer> Post(const std::string& path, const std::string& token, const std::string& body) {
    const std::string authorization = token.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", token);
    Send(fmt::format("POST {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}", path, authorization,
                     body.size(), body));
    return Read();
  }

 private:
  bool More() {
    char buffer[4096];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    // A reset is an end too.
    ended_ = n == 0 || (n < 0 && errno == ECONNRESET);
    if (n <= 0) return false;
    rest_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  UniqueFd fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string rest_;
};

}  // namespace imgd::web
