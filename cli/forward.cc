#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <list>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/session_call.h"
#include "cli/words.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr uint32_t kTensorBoardPort = 6006;

struct ForwardOptions {
  std::string place;
  std::string what;
  std::optional<uint32_t> local_port;
};

/// A listening socket on this machine's loopback, and its port.
struct Door {
  UniqueFd fd;
  uint32_t port = 0;
};

Result<Door> OpenDoor(uint32_t port) {
  Door door{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  const int on = 1;
  ::setsockopt(door.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (!door.fd.valid() || ::bind(door.fd.get(), raw, size) != 0 || ::listen(door.fd.get(), 64) != 0 ||
      ::getsockname(door.fd.get(), raw, &size) != 0) {
    return FailErrno(errno, fmt::format("cannot listen on port {} of 127.0.0.1", port));
  }
  door.port = ntohs(address.sin_port);
  return door;
}

/// One connection of a browser: its bytes by a session of their own.
class Connection {
 public:
  Connection(SessionCaller& caller, const std::string& parent, UniqueFd socket, std::string& trouble,
             std::mutex& mutex)
      : socket_(std::move(socket)), call_(caller.Open()), thread_([this, parent, &trouble, &mutex] {
          if (const auto error = Run(parent); !error.empty()) {
            const std::lock_guard lock(mutex);
            trouble = error;
          }
          done_ = true;
        }) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    call_->Cancel();
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  bool done() const { return done_; }

 private:
  /// Why there is no connection; empty where there was one.
  std::string Run(const std::string& parent) {
    v1::SessionBegin begin;
    begin.set_parent(parent);
    const auto opened = BeginSession(*call_, std::move(begin));
    if (!opened) {
      ::shutdown(socket_.get(), SHUT_RDWR);
      return opened.error().empty() ? "broken off" : opened.error().front().message;
    }
    std::thread sender([this] { SendAll(); });
    v1::OpenSessionResponse response;
    while (call_->Read(response)) {
      if (response.frame().has_end()) break;
      if (response.frame().has_output_end()) ::shutdown(socket_.get(), SHUT_WR);
      if (response.frame().has_output() && !WriteAll(socket_.get(), response.frame().output(), "connection"))
        break;
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
    call_->Cancel();
    sender.join();
    return "";
  }

  void SendAll() {
    while (true) {
      std::string bytes(kPieceBytes, '\0');
      const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      v1::SessionFrame frame;
      if (got <= 0) {
        frame.set_input_end(true);
        call_->WriteFrame(std::move(frame));
        return;
      }
      bytes.resize(static_cast<size_t>(got));
      *frame.mutable_input() = std::move(bytes);
      if (!call_->WriteFrame(std::move(frame))) return;
    }
  }

  UniqueFd socket_;
  std::unique_ptr<SessionCall> call_;
  std::atomic<bool> done_ = false;
  std::thread thread_;  // last: it uses all of the above
};

/// Takes connections until it is told to stop.
class Doorman {
 public:
  Doorman(Context& context, SessionCaller& caller, std::string parent, Door door)
      : context_(context),
        caller_(caller),
        parent_(std::move(parent)),
        door_(std::move(door)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Run(); }) {}
  Doorman(const Doorman&) = delete;
  Doorman& operator=(const Doorman&) = delete;
  ~Doorman() {
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  void Run() {
    constexpr int kTidyMs = 1000;
    std::array<pollfd, 2> fds = {{{stop_.get(), POLLIN, 0}, {door_.fd.get(), POLLIN, 0}}};
    while (true) {
      if (::poll(fds.data(), fds.size(), kTidyMs) < 0) continue;
      if (fds[0].revents != 0) return;
      connections_.remove_if([](const Connection& connection) { return connection.done(); });
      SayTrouble();
      if (fds[1].revents == 0) continue;
      UniqueFd socket(::accept4(door_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.valid()) connections_.emplace_back(caller_, parent_, std::move(socket), trouble_, mutex_);
    }
  }

  /// Each kind once: a browser asks again and again.
  void SayTrouble() {
    const std::lock_guard lock(mutex_);
    if (trouble_.empty() || trouble_ == said_) return;
    said_ = trouble_;
    context_.Say("a connection was not forwarded: " + Printable(said_), Style::kWarn);
  }

  Context& context_;
  SessionCaller& caller_;
  const std::string parent_;
  Door door_;
  UniqueFd stop_;
  std::mutex mutex_;
  std::string trouble_;  // guarded by mutex_
  std::string said_;
  std::list<Connection> connections_;
  std::thread thread_;  // last: it uses all of the above
};

/// The port that the person's side gets: that of the node, or another where it is taken.
Result<Door> DoorFor(const ForwardOptions& options, uint32_t node_port) {
  if (options.local_port) return OpenDoor(*options.local_port);
  if (auto door = OpenDoor(node_port == 0 ? kTensorBoardPort : node_port)) return door;
  return OpenDoor(0);
}

Result<uint32_t> PortOf(const std::string& what) {
  if (what == "tensorboard") return 0;
  uint32_t port = 0;
  const char* end = what.data() + what.size();
  const auto [rest, error] = std::from_chars(what.data(), end, port);
  if (error == std::errc() && rest == end && port >= 1 && port <= 65535) return port;
  return Fail(ErrorCode::kInvalidArgument, "found '{}'; tensorboard or a port of 1 to 65535 is expected",
              what);
}

int RunForward(Context& context, const ForwardOptions& options) {
  const auto port = PortOf(options.what);
  if (!port) return context.Fail({port.error()});
  context.FollowSession();
  std::signal(SIGPIPE, SIG_IGN);  // of a browser that has gone
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::SessionBegin begin;
  if (auto found = FindPlace(**client, options.place, std::nullopt, begin); !found)
    return context.Fail(found.error());
  begin.set_actor(OwnerName(context.env()));
  begin.mutable_forward()->set_port(*port);
  auto door = DoorFor(options, *port);
  if (!door) return context.Fail({door.error()});
  const uint32_t local = door->port;
  SessionCaller caller((*client)->address());
  const auto call = caller.Open();
  const Interrupt::Scope scope(context.interrupt(), [&call] { call->Cancel(); });
  if (*port == 0) context.Say("starting TensorBoard there ...", Style::kDim);
  auto opened = BeginSession(*call, std::move(begin));
  if (!opened) return context.Fail(opened.error());
  context.out() << fmt::format("http://127.0.0.1:{}/ is {} on node {}; Ctrl-C ends it\n", local,
                               Printable(opened->text()), Printable(opened->node()))
                << std::flush;
  std::optional<v1::SessionEnd> end;
  {
    const Doorman doorman(context, caller, opened->id(), std::move(*door));
    v1::OpenSessionResponse response;
    while (call->Read(response)) {
      if (response.frame().has_end()) end = response.frame().end();
    }
  }
  const auto finished = call->Finish();
  if (context.interrupt().Triggered()) return context.interrupt().ExitCode();
  if (end) return ExitCodeOfSession(context, *end);
  return finished ? 0 : context.Fail(finished.error());
}

}  // namespace

void AddForwardCommand(Command app, Context& context) {
  auto options = std::make_shared<ForwardOptions>();
  Command command =
      app.AddSubcommand("forward", "TensorBoard of a job, or a port of a node, on this machine");
  command
      .AddOption("JOB|NODE", options->place, "A job that runs, whose rank 0's node it is; or a node's name")
      .Required()
      .ValueName("");
  command.AddOption("WHAT", options->what, "tensorboard, or a port that something on the node listens on")
      .Required()
      .ValueName("")
      .Suggests({"tensorboard"});
  command.AddNumber("--port",
                    "Port of this machine's 127.0.0.1 (default: the same, or another if it is taken)", 0,
                    65535, [options](uint64_t port) { options->local_port = static_cast<uint32_t>(port); });
  command.Footer(
      "Connections go through imgd to 127.0.0.1 of the node; nothing else listens there. TensorBoard is "
      "started\n"
      "on the node for the job's figures, and ended with this command. Recorded and allowed as imgcli "
      "shell.\n\n"
      "Examples:\n"
      "  imgcli forward 12 tensorboard\n"
      "  imgcli forward gpu-3 8888 --port 8888");
  command.Runs([&context, options] { return RunForward(context, *options); });
}

}  // namespace imgd::cli
