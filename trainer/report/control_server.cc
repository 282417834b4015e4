#include "trainer/report/control_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "imgd/v1/trainer.pb.h"
#include "trainer/report/events_file.h"

namespace imgd::report {
namespace {

constexpr uint32_t kMaxCommand = 1 << 16;
constexpr size_t kMaxConnections = 64;

/// One who is connected, and what has come of his next command.
struct Connection {
  UniqueFd fd;
  std::string received;
};

uint32_t LengthOf(const std::string& bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < 4; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return length;
}

class Server final : public ControlServer {
 public:
  Server(UniqueFd listener, UniqueFd wake, ControlHandlers handlers)
      : listener_(std::move(listener)), wake_(std::move(wake)), handlers_(std::move(handlers)) {
    thread_ = std::thread([this] { Serve(); });
  }

  ~Server() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  void Serve() {
    while (true) {
      std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const auto& connection : connections_) fds.push_back({connection.fd.get(), POLLIN, 0});
      if (::poll(fds.data(), fds.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (fds[0].revents != 0) return;
      std::vector<Connection> kept;
      for (size_t i = 0; i < connections_.size(); ++i) {
        if (fds[i + 2].revents == 0 || Read(connections_[i])) kept.push_back(std::move(connections_[i]));
      }
      connections_ = std::move(kept);
      if (fds[1].revents != 0) Accept();
    }
  }

  void Accept() {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid() && connections_.size() < kMaxConnections) connections_.push_back({std::move(fd), ""});
  }

  /// False when the connection is done with.
  bool Read(Connection& connection) {
    char buffer[4096];
    const ssize_t n = ::recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    connection.received.append(buffer, static_cast<size_t>(n));
    while (connection.received.size() >= 4) {
      const uint32_t length = LengthOf(connection.received);
      if (length > kMaxCommand) {
        Reply(connection, fmt::format("a command of {} bytes; at most {} are allowed", length, kMaxCommand));
        return false;
      }
      if (connection.received.size() - 4 < length) break;
      const std::string payload = connection.received.substr(4, length);
      connection.received.erase(0, 4 + size_t{length});
      if (!Reply(connection, Obey(payload))) return false;
    }
    return true;
  }

  /// The error for the reply; empty when the command was taken up.
  std::string Obey(const std::string& payload) {
    v1::TrainerCommand command;
    if (!command.ParseFromString(payload)) return "not a TrainerCommand";
    switch (command.command_case()) {
      case v1::TrainerCommand::kCheckpoint:
        handlers_.checkpoint();
        return "";
      case v1::TrainerCommand::kStop:
        handlers_.stop(command.stop().checkpoint_first());
        return "";
      case v1::TrainerCommand::kProfile:
        if (command.profile().steps() == 0) return "a profile of no steps";
        handlers_.profile(command.profile().steps());
        return "";
      default:
        return "a command that this trainer does not know";
    }
  }

  /// Replies are small and go into the socket's buffer; one who does not read them is dropped.
  bool Reply(Connection& connection, const std::string& error) {
    v1::TrainerReply reply;
    reply.set_error(error);
    const std::string frame = Frame(reply.SerializeAsString());
    return ::send(connection.fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(frame.size());
  }

  UniqueFd listener_;
  UniqueFd wake_;
  ControlHandlers handlers_;
  std::vector<Connection> connections_;  ///< the server thread's own
  std::thread thread_;
};

/// Binds by way of the folder's descriptor, since a socket's path may have 107 bytes only.
Result<UniqueFd> Listen(const std::filesystem::path& run_dir, const std::string& name) {
  const auto path = run_dir / name;
  UniqueFd folder(::open(run_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return FailErrno(errno, fmt::format("cannot open folder {}", run_dir.native()));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return FailErrno(errno, "cannot make a Unix socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string short_path = fmt::format("/proc/self/fd/{}/{}", folder.get(), name);
  std::memcpy(address.sun_path, short_path.c_str(), short_path.size() + 1);
  ::unlink(path.c_str());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      // The folder says who gets here; the agent may be of its group only.
      ::chmod(short_path.c_str(), 0660) != 0 || ::listen(fd.get(), 16) != 0) {
    return FailErrno(errno, fmt::format("cannot listen on {}", path.native()));
  }
  return fd;
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::Start(const std::filesystem::path& run_dir,
                                                            int local_rank, ControlHandlers handlers) {
  IMGD_ASSIGN(UniqueFd listener, Listen(run_dir, fmt::format("control.{}", local_rank)));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake.valid()) return FailErrno(errno, "cannot make an eventfd");
  return std::make_unique<Server>(std::move(listener), std::move(wake), std::move(handlers));
}

}  // namespace imgd::report
