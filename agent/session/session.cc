#include "agent/session/session.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/process.h"
#include "agent/session/node_port.h"
#include "agent/session/tensorboard.h"
#include "common/utf8.h"
#include "imgd/v1/session.grpc.pb.h"
#include "proto/bidi_call.h"

namespace imgd {
namespace {

using Wire = BidiCall<v1::ServeSessionRequest, v1::ServeSessionResponse>;

constexpr uint32_t kMostRows = 1000;
constexpr uint32_t kMostColumns = 10'000;

TerminalSize SizeOf(const v1::SessionWindow& window) {
  return {static_cast<uint16_t>(std::clamp(window.rows(), 1U, kMostRows)),
          static_cast<uint16_t>(std::clamp(window.columns(), 1U, kMostColumns))};
}

/// A name of a kind of terminal, and nothing else that a program would believe.
std::string TermOf(const std::string& type) {
  constexpr size_t kMost = 64;
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  const bool good =
      !type.empty() && type.size() <= kMost && type.find_first_not_of(kAllowed) == std::string::npos;
  return good ? type : "dumb";
}

}  // namespace

/// The call to imgd, while it lasts.
struct Session::Call {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SessionService::Stub> stub;
  Wire wire;

  explicit Call(const std::shared_ptr<grpc::Channel>& to)
      : channel(to),
        stub(v1::SessionService::NewStub(to)),
        wire([this](grpc::ClientContext* context, auto* reactor) {
          stub->async()->ServeSession(context, reactor);
        }) {}

  bool Send(v1::SessionFrame frame) {
    v1::ServeSessionRequest request;
    *request.mutable_frame() = std::move(frame);
    return wire.Write(request);
  }
  void SendEnd(v1::SessionEnd end) {
    v1::SessionFrame frame;
    *frame.mutable_end() = std::move(end);
    Send(std::move(frame));
  }
};

Session::Session(std::string id, const SessionHost* host, std::string refusal, std::function<void()> on_done)
    : id_(std::move(id)), host_(host), refusal_(std::move(refusal)), on_done_(std::move(on_done)) {
  thread_ = std::thread([this] {
    Run();
    on_done_();
  });
}

Session::~Session() {
  abandoned_ = true;
  Cancel();
  thread_.join();
}

void Session::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (call_ != nullptr) call_->wire.Cancel();
  inbox_.Close();
}

void Session::Run() {
  auto channel = host_->channel();
  if (!channel) {
    spdlog::warn("node={} msg=\"a session could not be served: {}\"", host_->node,
                 channel.error().ToString());
    return;
  }
  Call call(*channel);
  {
    const std::lock_guard lock(mutex_);
    call_ = &call;
    if (cancelled_) call.wire.Cancel();
  }
  Serve(call);
  const std::lock_guard lock(mutex_);
  call_ = nullptr;  // imgd has what it needs, or is gone
}

void Session::Serve(Call& call) {
  v1::ServeSessionRequest request;
  request.set_id(id_);
  v1::ServeSessionResponse first;
  if (!call.wire.Write(request) || !call.wire.Read(first) || !first.has_task()) return;
  v1::SessionOpened opened;
  auto ends = Prepare(first.task(), opened);
  if (!ends) {
    v1::SessionEnd end;
    end.set_error(ToUtf8(ends.error().ToString()));
    call.SendEnd(std::move(end));
    v1::ServeSessionResponse rest;
    while (call.wire.Read(rest)) {
    }
    return;
  }
  Carry(call, std::move(*ends), first.task(), std::move(opened));
}

void Session::Carry(Call& call, PumpEnds ends, const v1::SessionTask& task, v1::SessionOpened opened) {
  const bool connected = task.connect_port() != 0;
  std::thread reader([&] {
    v1::ServeSessionResponse response;
    while (call.wire.Read(response)) {
      if (response.has_frame()) inbox_.Push(std::move(*response.mutable_frame()));
    }
    inbox_.Close();
  });
  SessionPump::Send send;
  if (!task.has_forward()) send = [&call](v1::SessionFrame frame) { return call.Send(std::move(frame)); };
  {
    SessionPump pump(std::move(ends), &inbox_, std::move(send));
    const bool starts = task.has_forward() && task.forward().port() == 0;
    if (!starts || AwaitTensorBoard(pump, opened.port())) {
      v1::ServeSessionRequest request;
      *request.mutable_opened() = std::move(opened);
      call.wire.Write(request);
      while (!abandoned_ && pump.Step(-1)) {
      }
    }
    if (!pump.gone() && !abandoned_) call.SendEnd(pump.End());
    if (!connected) spdlog::info("node={} msg=\"a session has ended\"", host_->node);
  }
  // imgd ends the call once it has the last frame; a reader that waits with one more is let go by the inbox.
  if (abandoned_) call.wire.Cancel();
  reader.join();
}

Result<PumpEnds> Session::Prepare(const v1::SessionTask& task, v1::SessionOpened& opened) {
  if (!refusal_.empty()) return Fail(ErrorCode::kResourceExhausted, "{}", refusal_);
  if (!host_->allowed) {
    return Fail(ErrorCode::kFailedPrecondition,
                "node {} takes no sessions (sessions: false in its agent.yaml)", host_->node);
  }
  if (task.connect_port() != 0) {
    PumpEnds ends;
    IMGD_ASSIGN(ends.process.output, ConnectToPort(task.connect_port(), inbox_.event_fd()));
    ends.process.input = UniqueFd(::fcntl(ends.process.output.get(), F_DUPFD_CLOEXEC, 0));
    return ends;
  }
  if (task.has_command()) return PrepareProgram(task, opened);
  if (task.forward().port() == 0) return PrepareTensorBoard(task, opened);
  opened.set_port(task.forward().port());
  opened.set_text(fmt::format("port {}", task.forward().port()));
  PumpEnds ends;
  if (task.has_run()) {
    IMGD_ASSIGN(const RankPlace rank, host_->find_rank(task.run(), task.rank()));
    ends.rank = PidfdOpen(rank.pid);
    ends.rank_name = rank.name;
  }
  return ends;
}

/// A watch on the rank's process, which is still the one that was meant.
static Result<UniqueFd> WatchRank(const RankPlace& rank) {
  UniqueFd pidfd = PidfdOpen(rank.pid);
  if (pidfd.valid() && IsAlive(rank.pid, rank.start_time)) return pidfd;
  return Fail(ErrorCode::kFailedPrecondition, "{} has just ended", rank.name);
}

Result<PumpEnds> Session::PrepareProgram(const v1::SessionTask& task, v1::SessionOpened& opened) {
  PumpEnds ends;
  SessionProgram program;
  if (task.has_run()) {
    IMGD_ASSIGN(const RankPlace rank, host_->find_rank(task.run(), task.rank()));
    IMGD_ASSIGN(ends.rank, WatchRank(rank));
    ends.rank_name = rank.name;
    IMGD_ASSIGN(program.environment, RankSessionEnvironment(rank.pid));
    program.folder = FolderOf(rank.pid);
    program.run_dir = rank.run_dir;
  } else {
    std::vector<std::string> inherited;
    for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
    program.environment = NodeSessionEnvironment(inherited);
    program.folder = ValueIn(program.environment, "HOME");
    std::error_code error;
    if (!std::filesystem::is_directory(program.folder, error)) program.folder = "/";
  }
  const auto& command = task.command();
  program.arguments.assign(command.arguments().begin(), command.arguments().end());
  if (program.arguments.empty()) program.arguments = {UsersShell()};
  program.program = program.arguments.front();
  if (command.has_terminal()) {
    program.terminal = SizeOf(command.terminal().window());
    SetIn(program.environment, "TERM", TermOf(command.terminal().type()));
  }
  opened.set_text(ToUtf8(program.program));
  IMGD_ASSIGN(ends.process, StartSessionProcess(host_->shim_program, program));
  return ends;
}

Result<PumpEnds> Session::PrepareTensorBoard(const v1::SessionTask& task, v1::SessionOpened& opened) {
  if (!task.has_run())
    return Fail(ErrorCode::kInvalidArgument, "TensorBoard is started for a job; a node alone has none");
  PumpEnds ends;
  IMGD_ASSIGN(const RankPlace rank, host_->find_rank(task.run(), task.rank()));
  IMGD_ASSIGN(ends.rank, WatchRank(rank));
  ends.rank_name = rank.name;
  IMGD_ASSIGN(auto program, TensorBoardFor(host_->tensorboard, rank.figures_dir));
  program.program.run_dir = rank.run_dir;
  opened.set_port(program.port);
  opened.set_text(ToUtf8(fmt::format("TensorBoard of {}", rank.figures_dir)));
  IMGD_ASSIGN(ends.process, StartSessionProcess(host_->shim_program, program.program));
  ends.process.input.reset();
  return ends;
}

}  // namespace imgd
