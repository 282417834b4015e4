#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/session_call.h"
#include "cli/session_terminal.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr size_t kInputBytes = 64 << 10;

struct ShellOptions {
  std::string place;
  std::optional<uint32_t> rank;
  bool no_tty = false;
  std::vector<std::string> command;
};

/// Sends what is typed, or comes by a pipe, from Start() on, and the window's size where that changes; a
/// thread of its own.
class ShellInput {
 public:
  ShellInput(SessionCall& call, const UniqueFd& signals)
      : call_(call),
        signals_(signals),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Run(); }) {}
  ShellInput(const ShellInput&) = delete;
  ShellInput& operator=(const ShellInput&) = delete;
  ~ShellInput() {
    stopped_ = true;
    Wake();
    thread_.join();
  }

  /// The session is there. `terminal` is null where there is none.
  void Start(RawTerminal* terminal) {
    terminal_ = terminal;
    started_ = true;
    Wake();
  }
  /// Somebody typed "~.".
  bool left() const { return left_; }

 private:
  void Wake() {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }

  void Run() {
    std::array<pollfd, 3> fds = {{{wake_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {-1, POLLIN, 0}}};
    while (true) {
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      if (stopped_) return;
      if (fds[0].revents != 0) {
        uint64_t count = 0;
        (void)!::read(wake_.get(), &count, sizeof count);
        if (terminal_ != nullptr && !SendWindow()) return;
        fds[2].fd = STDIN_FILENO;
      }
      if (fds[1].revents != 0 && !TakeSignals()) return;
      if (fds[2].revents == 0) continue;
      const auto more = SendInput();
      if (!more) return;
      if (!*more) fds[2].fd = -1;
    }
  }

  bool SendWindow() {
    v1::SessionFrame frame;
    *frame.mutable_window() = WindowSize();
    return call_.WriteFrame(std::move(frame));
  }

  bool TakeSignals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (!started_ || terminal_ == nullptr) continue;
      if (info.ssi_signo == SIGCONT) terminal_.load()->Enter();
      if (!SendWindow()) return false;
    }
    return true;
  }

  /// Whether there may be more; nothing where the session is over.
  std::optional<bool> SendInput() {
    std::string bytes(kInputBytes, '\0');
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    v1::SessionFrame frame;
    if (got <= 0) {
      frame.set_input_end(true);
      if (!call_.WriteFrame(std::move(frame))) return std::nullopt;
      return false;
    }
    bytes.resize(static_cast<size_t>(got));
    bool leave = false;
    if (terminal_ != nullptr) bytes = escapes_.Take(bytes, leave);
    if (leave) {
      left_ = true;
      call_.Cancel();
      return std::nullopt;
    }
    if (bytes.empty()) return true;
    *frame.mutable_input() = std::move(bytes);
    if (!call_.WriteFrame(std::move(frame))) return std::nullopt;
    return true;
  }

  SessionCall& call_;
  const UniqueFd& signals_;
  EscapeFilter escapes_;
  std::atomic<RawTerminal*> terminal_ = nullptr;
  std::atomic<bool> started_ = false;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> left_ = false;
  const UniqueFd wake_;
  std::thread thread_;  // last: it uses all of the above
};

/// Prints what comes until the end, which it returns; nothing where the call broke.
std::optional<v1::SessionEnd> PrintOutput(Context& context, SessionCall& call) {
  v1::OpenSessionResponse response;
  std::optional<v1::SessionEnd> end;
  while (call.Read(response)) {
    auto& frame = *response.mutable_frame();
    if (frame.has_output()) context.out() << frame.output() << std::flush;
    if (frame.has_error_output()) context.err() << frame.error_output() << std::flush;
    if (frame.has_end()) end = std::move(*frame.mutable_end());
    if (context.OutputIsOver()) call.Cancel();
  }
  return end;
}

int RunSession(Context& context, SessionCall& call, const UniqueFd& signals, v1::SessionBegin begin) {
  const bool terminal = begin.command().has_terminal();
  std::optional<v1::SessionEnd> end;
  Reply<v1::SessionOpened> opened = tl::unexpected(Errors{});
  bool left = false;
  Interrupt& interrupt = context.interrupt();
  const Interrupt::Scope scope(interrupt, [&call] { call.Cancel(); });
  {
    std::optional<RawTerminal> raw;  // until the input's thread has ended
    ShellInput input(call, signals);
    opened = BeginSession(call, std::move(begin));
    if (opened) {
      if (terminal) {
        raw.emplace();
        interrupt.BeforeLeaving([&raw] { raw->Leave(); });
      }
      input.Start(raw ? &*raw : nullptr);
      end = PrintOutput(context, call);
    }
    left = input.left();
    interrupt.BeforeLeaving({});
  }
  if (interrupt.Triggered()) return interrupt.ExitCode();
  if (!opened) return context.Fail(opened.error());
  const auto finished = call.Finish();
  if (left) {
    context.Say("left; what ran there is ended");
    return ExitCodeOf(ErrorCode::kCancelled);
  }
  if (const auto over = context.OutputIsOver(); over && *over != 0) return *over;
  if (end) return ExitCodeOfSession(context, *end);
  if (!finished) return context.Fail(finished.error());
  return context.Fail({{.code = ErrorCode::kInternal, .message = "the session broke off"}});
}

int RunShell(Context& context, const ShellOptions& options) {
  const bool terminal = !options.no_tty && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  // Before there are threads.
  const auto signals = TakeWindowSignals();
  if (!signals) return context.Fail({signals.error()});
  context.FollowSession(terminal);
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::SessionBegin begin;
  if (auto found = FindPlace(**client, options.place, options.rank, begin); !found)
    return context.Fail(found.error());
  begin.set_actor(OwnerName(context.env()));
  auto* command = begin.mutable_command();
  for (const auto& word : options.command) command->add_arguments(word);
  if (terminal) {
    command->mutable_terminal()->set_type(context.env()("TERM"));
    *command->mutable_terminal()->mutable_window() = WindowSize();
  }
  SessionCaller caller((*client)->address());
  const auto call = caller.Open();
  return RunSession(context, *call, *signals, std::move(begin));
}

}  // namespace

void AddShellCommand(Command app, Context& context) {
  auto options = std::make_shared<ShellOptions>();
  Command command =
      app.AddSubcommand("shell", "A shell, or one command, on a node or beside a rank of a job");
  command.AddOption("NODE|JOB", options->place, "Name of a node; or the number or name of a job that runs")
      .Required()
      .ValueName("");
  command.AddNumber("--rank", "Beside this rank of the job (default: 0)", 0, UINT32_MAX,
                    [options](uint64_t rank) { options->rank = static_cast<uint32_t>(rank); });
  command.AddFlag("-T,--no-tty", options->no_tty, "Pipes, also where this is a terminal");
  command.TakesRest(options->command);
  command.Footer(
      "What follows -- is run in the place of a shell. Its exit code is imgcli's.\n"
      "Beside a rank it has the rank's environment, folder and user, and ends with the rank. In a terminal,\n"
      "~. at the start of a line leaves at once. Every use is recorded (imgcli events); whoever runs imgd "
      "has\n"
      "to allow it (shell: true in imgd.yaml).\n\n"
      "Examples:\n"
      "  imgcli shell gpu-3\n"
      "  imgcli shell 12 --rank 3\n"
      "  imgcli shell rn50-90ep -- nvidia-smi\n"
      "  imgcli shell gpu-3 -- tar cz /var/log/syslog > syslog.tgz");
  command.Runs([&context, options] { return RunShell(context, *options); });
}

}  // namespace imgd::cli
