#include "common/remote/testing/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>

namespace imgd {
namespace {

bool SendAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void Reset(int fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

TestRequest Parse(std::string_view head) {
  TestRequest request;
  const size_t line = head.find("\r\n");
  const size_t space = head.find(' ');
  request.method = head.substr(0, space);
  request.target = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
  for (size_t at = line + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    const auto field = head.substr(at, end - at);
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos) break;
    std::string name(field.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers[name] = field.substr(std::min(field.size(), colon + 2));
    at = end + 2;
  }
  return request;
}

}  // namespace

TestHttpServer::TestHttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::listen(listener_.get(), 64);
  socklen_t size = sizeof address;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

TestHttpServer::~TestHttpServer() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  accepting_.join();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (auto& thread : threads) thread.join();
}

std::vector<std::string> TestHttpServer::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

void TestHttpServer::Accept() {
  while (!stopping_) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++connections_;
    const int on = 1;  // head and body are sent apart
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const std::lock_guard lock(mutex_);
    open_.insert(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void TestHttpServer::Serve(int fd) {
  std::string data;
  char buffer[64 << 10];
  const auto receive = [&] {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) data.append(buffer, static_cast<size_t>(n));
    return n > 0;
  };
  for (bool more = true; more && !stopping_;) {
    const size_t end = data.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (!receive()) break;
      continue;
    }
    TestRequest request = Parse(std::string_view(data).substr(0, end + 2));
    data.erase(0, end + 4);
    const std::string length = request.header("content-length");
    const size_t size = length.empty() ? 0 : std::stoull(length);
    while (data.size() < size && receive()) {
    }
    if (data.size() < size) break;
    request.body = data.substr(0, size);
    data.erase(0, size);
    more = Answer(fd, request);
  }
  const std::lock_guard lock(mutex_);
  open_.erase(fd);
  ::close(fd);
}

bool TestHttpServer::Answer(int fd, const TestRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    log_.push_back(fmt::format("{} {} {}", request.method, request.target, request.header("range")));
  }
  const TestReply reply = handler_(request);
  std::string head = fmt::format("HTTP/1.1 {} X\r\n", reply.status);
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!reply.endless)
    head += fmt::format("content-length: {}\r\n", reply.content_length.value_or(reply.body.size()));
  if (!SendAll(fd, head + "\r\n")) return false;
  if (request.method == "HEAD") return true;
  const std::string_view body = reply.body;
  if (reply.cut_after) {
    SendAll(fd, body.substr(0, *reply.cut_after));
    Reset(fd);
    return false;
  }
  if (reply.stall_after) {
    SendAll(fd, body.substr(0, *reply.stall_after));
    char byte = 0;
    return ::recv(fd, &byte, 1, MSG_PEEK) > 0;
  }
  if (reply.drip) {
    for (size_t i = 0; i < body.size() && !stopping_ && SendAll(fd, body.substr(i, 1)); ++i)
      std::this_thread::sleep_for(*reply.drip);
    return false;
  }
  while (reply.endless && SendAll(fd, body)) {
  }
  return SendAll(fd, body) && !reply.content_length;
}

TestReply ServeContent(const TestRequest& request, const std::string& content, const std::string& etag) {
  TestReply reply{.headers = {{"ETag", etag}}};
  if (const auto wanted = request.header("if-match"); !wanted.empty() && wanted != etag) {
    reply.status = 412;
    return reply;
  }
  const std::string range = request.header("range");
  if (!range.starts_with("bytes=")) {
    reply.body = content;
    return reply;
  }
  const size_t dash = range.find('-');
  const size_t first = std::stoull(range.substr(6, dash - 6));
  const size_t last = std::min<size_t>(std::stoull(range.substr(dash + 1)), content.size() - 1);
  if (first >= content.size()) {
    reply.status = 416;
    return reply;
  }
  reply.status = 206;
  reply.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", first, last, content.size()));
  reply.body = content.substr(first, last - first + 1);
  return reply;
}

}  // namespace imgd
