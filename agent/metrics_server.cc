#include "agent/metrics_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "agent/network.h"

namespace imgd {
namespace {

constexpr size_t kMostRequestBytes = 8 << 10;
constexpr size_t kMostScrapers = 32;
constexpr auto kScrapeTimeout = std::chrono::seconds(10);
constexpr auto kAcceptPause = std::chrono::seconds(1);

std::string AnswerText(std::string_view status, std::string_view more_headers, std::string_view body,
                       bool with_body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n{}"
      "Connection: close\r\n\r\n{}",
      status, body.size(), more_headers, with_body ? body : "");
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::Listen(EventLoop* loop, const std::string& address,
                                                             MakeText make_text) {
  const auto where = SplitHostPort(address, 0);
  if (!where) return Fail(ErrorCode::kInvalidArgument, "metrics: '{}' is not HOST:PORT", address);
  auto listener = ListenOn(where->host, where->port);
  if (!listener) {
    listener.error().message = "metrics: " + listener.error().message;
    return tl::unexpected(std::move(listener).error());
  }
  ::fcntl(listener->fd.get(), F_SETFL, O_NONBLOCK);
  std::unique_ptr<MetricsServer> server(
      new MetricsServer(loop, std::move(listener->fd), listener->port, std::move(make_text)));
  IMGD_TRY(loop->Watch(server->listener_.get(), EPOLLIN, [raw = server.get()](uint32_t) { raw->Accept(); }));
  return server;
}

MetricsServer::MetricsServer(EventLoop* loop, UniqueFd listener, uint32_t port, MakeText make_text)
    : loop_(loop), listener_(std::move(listener)), port_(port), make_text_(std::move(make_text)) {}

MetricsServer::~MetricsServer() {
  loop_->Unwatch(listener_.get());
  loop_->Cancel(accept_again_);
  while (!clients_.empty()) Drop(clients_.begin()->first);
}

void MetricsServer::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    // It stays in the queue and would be reported again at once, and again.
    loop_->Modify(listener_.get(), 0);
    accept_again_ = loop_->After(kAcceptPause, [this] { loop_->Modify(listener_.get(), EPOLLIN); });
  }
  if (!fd.valid() || clients_.size() >= kMostScrapers) return;
  const int number = fd.get();
  if (!loop_->Watch(number, EPOLLIN, [this, number](uint32_t) { OnClient(number); })) return;
  Client& client = clients_[number];
  client.fd = std::move(fd);
  client.deadline = loop_->After(kScrapeTimeout, [this, number] { Drop(number); });
}

void MetricsServer::OnClient(int fd) {
  Client& client = clients_.at(fd);
  bool stays = false;
  if (client.answer.empty()) {
    stays = ReadRequest(client);
  } else if (client.sent < client.answer.size()) {
    stays = SendAnswer(client);
  } else {
    stays = ReadToEnd(client);
  }
  if (!stays) Drop(fd);
}

bool MetricsServer::ReadRequest(Client& client) {
  char buffer[4096];
  const ssize_t n = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client.request.append(buffer, static_cast<size_t>(n));
  const bool is_whole = client.request.find("\r\n\r\n") != std::string::npos;
  if (!is_whole && client.request.size() <= kMostRequestBytes) return true;
  client.answer =
      is_whole ? AnswerTo(client.request)
               : AnswerText("431 Request Header Fields Too Large", "", "the request is too long\n", true);
  return SendAnswer(client);
}

std::string MetricsServer::AnswerTo(const std::string& request) const {
  const auto line = std::string_view(request).substr(0, request.find("\r\n"));
  const auto target_at = line.find(' ');
  const auto version_at = line.rfind(' ');
  if (target_at == std::string_view::npos || target_at == version_at ||
      !line.substr(version_at + 1).starts_with("HTTP/1.")) {
    return AnswerText("400 Bad Request", "", "this is not HTTP/1.1\n", true);
  }
  const auto method = line.substr(0, target_at);
  const auto target = line.substr(target_at + 1, version_at - target_at - 1);
  const bool is_head = method == "HEAD";
  if (target.substr(0, target.find('?')) != "/metrics") {
    return AnswerText("404 Not Found", "", "imgagent has /metrics and nothing else\n", !is_head);
  }
  if (method != "GET" && !is_head) {
    return AnswerText("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET and HEAD are allowed\n", true);
  }
  return AnswerText("200 OK", "", make_text_(), !is_head);
}

bool MetricsServer::SendAnswer(Client& client) {
  while (client.sent < client.answer.size()) {
    const auto rest = std::string_view(client.answer).substr(client.sent);
    const ssize_t n = ::send(client.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      loop_->Modify(client.fd.get(), EPOLLOUT);
      return true;
    }
    if (n < 0) return false;
    client.sent += static_cast<size_t>(n);
  }
  // Closing with bytes unread would reset the connection, and the answer with it: the other side closes
  // first.
  ::shutdown(client.fd.get(), SHUT_WR);
  loop_->Modify(client.fd.get(), EPOLLIN);
  return true;
}

bool MetricsServer::ReadToEnd(Client& client) {
  char buffer[4096];
  const ssize_t n = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client.ignored += static_cast<size_t>(n);
  return n > 0 && client.ignored <= kMostRequestBytes;
}

void MetricsServer::Drop(int fd) {
  const auto it = clients_.find(fd);
  if (it == clients_.end()) return;
  loop_->Unwatch(fd);
  loop_->Cancel(it->second.deadline);
  clients_.erase(it);
}

}  // namespace imgd
