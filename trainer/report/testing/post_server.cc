#include "trainer/report/testing/post_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace imgd::report {
namespace {

/// The next request on the connection; nothing at its end.
std::optional<TestPost> ReadPost(int fd, std::string& rest) {
  const auto more = [&] {
    char buffer[4096];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) rest.append(buffer, static_cast<size_t>(n));
    return n > 0;
  };
  size_t end = std::string::npos;
  while ((end = rest.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return std::nullopt;
  }
  TestPost post{.path = {}, .head = rest.substr(0, end + 2), .body = {}};
  rest.erase(0, end + 4);
  const size_t space = post.head.find(' ');
  post.path = post.head.substr(space + 1, post.head.find(' ', space + 1) - space - 1);
  size_t length = 0;
  if (const size_t at = post.head.find("Content-Length: "); at != std::string::npos)
    std::from_chars(post.head.data() + at + 16, post.head.data() + post.head.size(), length);
  while (rest.size() < length) {
    if (!more()) return std::nullopt;
  }
  post.body = rest.substr(0, length);
  rest.erase(0, length);
  return post;
}

}  // namespace

PostServer::PostServer(Handler handler) : handler_(std::move(handler)) { Start(); }
PostServer::~PostServer() { Stop(); }

void PostServer::Start() {
  stopping_ = false;
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::listen(listener_.get(), 16);
  socklen_t size = sizeof address;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

void PostServer::Stop() {
  stopping_ = true;
  if (listener_.valid()) ::shutdown(listener_.get(), SHUT_RDWR);
  if (accepting_.joinable()) accepting_.join();
  listener_.reset();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (auto& thread : threads) thread.join();
}

std::string PostServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

void PostServer::Accept() {
  while (!stopping_) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    open_.insert(fd);
    threads_.emplace_back([this, fd] {
      Serve(fd);
      const std::lock_guard ended(mutex_);
      open_.erase(fd);
      ::close(fd);
    });
  }
}

void PostServer::Serve(int fd) {
  std::string rest;
  while (const auto post = ReadPost(fd, rest)) {
    const TestPostReply reply = handler_(*post);
    std::string text =
        fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                    reply.status, reply.body.size(), reply.headers, reply.body);
    if (reply.cut) text.resize(text.size() - std::min<size_t>(reply.body.size(), 1));
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (reply.cut) return;
  }
}

}  // namespace imgd::report
