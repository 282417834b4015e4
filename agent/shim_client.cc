#include "agent/shim_client.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace imgd {

Result<std::unique_ptr<ShimClient>> ShimClient::Connect(EventLoop* loop, const RunDir& dir,
                                                        Handlers handlers) {
  // By the folder's descriptor: the path of the folder may be longer than a socket's may be.
  const UniqueFd folder(::open(dir.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return FailErrno(errno, fmt::format("cannot open {}", dir.path.native()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = fmt::format("/proc/self/fd/{}/{}", folder.get(), kShimSocket);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FailErrno(errno, fmt::format("cannot connect to {}", (dir.path / kShimSocket).native()));
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return FailErrno(errno, "cannot tell who listens on the shim's socket");
  }
  std::unique_ptr<ShimClient> client(new ShimClient(loop, std::move(fd), peer.pid, std::move(handlers)));
  IMGD_TRY(loop->Watch(client->fd_.get(), EPOLLIN, [raw = client.get()](uint32_t) { raw->OnReadable(); }));
  return client;
}

ShimClient::ShimClient(EventLoop* loop, UniqueFd fd, pid_t peer, Handlers handlers)
    : loop_(loop), fd_(std::move(fd)), peer_(peer), handlers_(std::move(handlers)) {}

ShimClient::~ShimClient() { loop_->Unwatch(fd_.get()); }

void ShimClient::Stop(int64_t grace_ms, bool checkpoint_first) {
  const auto command = fmt::format("stop {} {}\n", grace_ms, checkpoint_first ? 1 : 0);
  if (::send(fd_.get(), command.data(), command.size(), MSG_NOSIGNAL) < 0) {
    // The connection is broken, which on_closed will tell; the run's owner asks again on the next one.
    spdlog::debug("msg=\"the shim took no command: {}\"", std::strerror(errno));
  }
}

void ShimClient::OnReadable() {
  char buffer[16 << 10];
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    loop_->Unwatch(fd_.get());
    const auto on_closed = handlers_.on_closed;  // outlives this object, which may end in it
    on_closed();
    return;
  }
  in_.append(buffer, static_cast<size_t>(n));
  size_t newline = 0;
  while ((newline = in_.find('\n')) != std::string::npos) {
    const std::string line = in_.substr(0, newline);
    in_.erase(0, newline + 1);
    TakeLine(line);
  }
}

void ShimClient::TakeLine(std::string_view line) {
  auto record = ParseRunRecord(line);
  if (!record) {
    spdlog::error("msg=\"from a shim: {}\"", record.error().ToString());
  } else if (record->shim_pid != peer_) {
    spdlog::error("msg=\"process {} speaks for shim {}\"", peer_, record->shim_pid);
  } else {
    handlers_.on_record(std::move(*record));
  }
}

}  // namespace imgd
