#include "agent/shim/status_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/run_dir.h"

namespace imgd {
namespace {
constexpr size_t kMaxCommandBytes = 4096;
}

Result<std::unique_ptr<StatusServer>> StatusServer::Listen(EventLoop* loop, OnCommand on_command) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, kShimSocket, sizeof address.sun_path - 1);
  ::unlink(kShimSocket);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), 8) != 0) {
    return FailErrno(errno, fmt::format("cannot listen on {}", kShimSocket));
  }
  return std::unique_ptr<StatusServer>(new StatusServer(loop, std::move(fd), std::move(on_command)));
}

StatusServer::StatusServer(EventLoop* loop, UniqueFd listener, OnCommand on_command)
    : loop_(loop), listener_(std::move(listener)), on_command_(std::move(on_command)) {
  (void)loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

StatusServer::~StatusServer() {
  loop_->Unwatch(listener_.get());
  for (const auto& [fd, client] : clients_) loop_->Unwatch(fd);
}

void StatusServer::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  const int number = fd.get();
  if (!loop_->Watch(number, EPOLLIN, [this, number](uint32_t events) { OnClient(number, events); })) return;
  Client& client = clients_[number];
  client.fd = std::move(fd);
  client.behind = !latest_.empty();
  if (!WriteTo(client)) Drop(number);
}

void StatusServer::Push(std::string json) {
  latest_ = std::move(json) + "\n";
  delivered_ = false;
  for (auto& [fd, client] : clients_) {
    client.behind = true;
    // One that is gone is dropped when epoll says so: this may be called while its command is handled.
    (void)WriteTo(client);
  }
}

void StatusServer::FlushOnce() {
  for (auto& [fd, client] : clients_) (void)WriteTo(client);
}

void StatusServer::OnClient(int fd, uint32_t events) {
  Client& client = clients_.at(fd);
  const bool readable = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
  if ((readable && !ReadFrom(client)) || !WriteTo(client)) Drop(fd);
}

bool StatusServer::ReadFrom(Client& client) {
  char buffer[1024];
  const ssize_t n = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client.in.append(buffer, static_cast<size_t>(n));
  size_t newline = 0;
  while ((newline = client.in.find('\n')) != std::string::npos) {
    const std::string command = client.in.substr(0, newline);
    client.in.erase(0, newline + 1);
    on_command_(command);
  }
  return client.in.size() <= kMaxCommandBytes;
}

bool StatusServer::WriteTo(Client& client) {
  while (client.behind || !client.out.empty()) {
    if (client.out.empty()) {
      client.out = latest_;
      client.behind = false;
    }
    const ssize_t n = ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      loop_->Modify(client.fd.get(), EPOLLIN | EPOLLOUT);
      return true;
    }
    if (n < 0) return false;
    client.out.erase(0, static_cast<size_t>(n));
    if (client.out.empty() && !client.behind) delivered_ = true;
  }
  loop_->Modify(client.fd.get(), EPOLLIN);
  return true;
}

void StatusServer::Drop(int fd) {
  loop_->Unwatch(fd);
  clients_.erase(fd);
}

}  // namespace imgd
