#include "agent/session/session_pump.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <system_error>
#include <utility>

#include "agent/shim/session_keeper.h"

namespace imgd {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kTailBytes = 4096;
constexpr std::chrono::milliseconds kAskEvery{2000};
/// What a terminal takes as the end of the input: Ctrl-D.
constexpr char kEndOfInput = '\x04';
// As shells have it.
constexpr uint32_t kCannotRun = 126;
constexpr uint32_t kNoSuchProgram = 127;

}  // namespace

SessionPump::SessionPump(PumpEnds ends, SessionInbox* inbox, Send send)
    : ends_(std::move(ends)), inbox_(inbox), send_(std::move(send)) {}

SessionPump::~SessionPump() {
  inbox_->Close();
  ends_.process.control.reset();
  if (HasProcess() && ended_) ::waitpid(ends_.process.keeper, nullptr, 0);
}

bool SessionPump::Over() const {
  if (HasProcess()) return ended_;
  return ended_ || gone_ || !error_.empty() || (output_ends_ && input_ends_ && pending_.empty());
}

bool SessionPump::Step(int wait_ms) {
  if (Over()) return false;
  auto& process = ends_.process;
  const auto when = [](const UniqueFd& fd, bool wanted) { return wanted && fd.valid() ? fd.get() : -1; };
  std::array<pollfd, 6> fds = {{{inbox_->event_fd(), POLLIN, 0},
                                {when(process.input, !pending_.empty()), POLLOUT, 0},
                                {when(process.output, true), POLLIN, 0},
                                {when(process.error, true), POLLIN, 0},
                                {when(process.control, true), POLLIN, 0},
                                {when(ends_.rank, !told_to_end_), POLLIN, 0}}};
  const int ask_ms = static_cast<int>(kAskEvery.count());
  const bool waits = !pending_.empty();
  if (waits && (wait_ms < 0 || wait_ms > ask_ms)) wait_ms = ask_ms;
  if (::poll(fds.data(), fds.size(), wait_ms) < 0) return true;
  if (waits) AskForPerson();
  if (fds[0].revents != 0) OnInbox();
  if (fds[1].revents != 0) WriteInput();
  if (fds[0].revents != 0 || fds[1].revents != 0) TakeFrames();
  if (fds[2].revents != 0) ReadOutput(process.output, false);
  if (fds[3].revents != 0) ReadOutput(process.error, true);
  if (fds[4].revents != 0) OnControl();
  if (fds[5].revents != 0 && !Over())
    EndBecause(ends_.rank_name + " has ended, and the session beside it with it");
  return !Over();
}

v1::SessionEnd SessionPump::End() const {
  v1::SessionEnd end;
  end.set_exit_code(exit_code_);
  end.set_signal(signal_);
  end.set_error(error_);
  return end;
}

void SessionPump::EndBecause(std::string error) {
  if (error_.empty()) error_ = std::move(error);
  if (std::exchange(told_to_end_, true)) return;
  // The keeper reads the end of its socket, and says when nothing is left.
  if (ends_.process.control.valid()) ::shutdown(ends_.process.control.get(), SHUT_WR);
}

void SessionPump::OnInbox() {
  inbox_->ClearEvent();
  if (inbox_->closed() && !gone_) {
    gone_ = true;
    EndBecause("the person has gone");
  }
}

void SessionPump::TakeFrames() {
  while (pending_.empty()) {
    auto frame = inbox_->Take();
    if (!frame) return;
    TakeFrame(std::move(*frame));
    WriteInput();
  }
}

void SessionPump::TakeFrame(v1::SessionFrame frame) {
  if (frame.has_input() && !input_ends_) {
    pending_ = std::move(*frame.mutable_input());
    sent_ = std::chrono::steady_clock::now();
  } else if (frame.has_input_end() && !input_ends_) {
    EndInput();
  } else if (frame.has_window()) {
    ResizeTerminal(ends_.process, {static_cast<uint16_t>(frame.window().rows()),
                                   static_cast<uint16_t>(frame.window().columns())});
  }
}

void SessionPump::EndInput() {
  input_ends_ = true;
  if (ends_.process.terminal) {
    pending_ = kEndOfInput;
  } else if (HasProcess()) {
    ends_.process.input.reset();
  } else if (ends_.process.input.valid()) {
    ::shutdown(ends_.process.input.get(), SHUT_WR);
  }
}

void SessionPump::WriteInput() {
  UniqueFd& input = ends_.process.input;
  while (!pending_.empty()) {
    const ssize_t written = input.valid() ? ::write(input.get(), pending_.data(), pending_.size()) : -1;
    if (written < 0 && input.valid() && errno == EINTR) continue;
    if (written < 0 && input.valid() && errno == EAGAIN) return;
    if (written < 0) {  // the program reads no more; what else comes is for nobody
      pending_.clear();
      input.reset();
      if (!HasProcess()) input_ends_ = true;
      return;
    }
    pending_.erase(0, static_cast<size_t>(written));
  }
}

bool SessionPump::ReadOutput(UniqueFd& fd, bool is_error) {
  if (!fd.valid()) return false;
  std::string bytes(kPieceBytes, '\0');
  const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {  // a terminal ends with EIO
    fd.reset();
    if (!HasProcess()) EndConnectionsOutput(got == 0);
    return false;
  }
  bytes.resize(static_cast<size_t>(got));
  tail_.append(bytes);
  if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  if (!send_ || gone_) return true;
  v1::SessionFrame frame;
  (is_error ? *frame.mutable_error_output() : *frame.mutable_output()) = std::move(bytes);
  SendFrame(std::move(frame));
  return true;
}

/// Which may still read, where its end was in order.
void SessionPump::EndConnectionsOutput(bool in_order) {
  output_ends_ = true;
  if (!in_order) ended_ = true;
  if (ended_ || gone_ || !send_) return;
  v1::SessionFrame frame;
  frame.set_output_end(true);
  SendFrame(std::move(frame));
}

void SessionPump::SendFrame(v1::SessionFrame frame) {
  const bool reached = send_(std::move(frame));
  sent_ = std::chrono::steady_clock::now();
  if (reached) return;
  gone_ = true;
  EndBecause("the person has gone");
}

void SessionPump::AskForPerson() {
  if (send_ && !gone_ && std::chrono::steady_clock::now() - sent_ >= kAskEvery) SendFrame({});
}

void SessionPump::DrainOutput() {
  // Nobody of the session is left to write; who else was handed a pipe is not waited for.
  while (ReadOutput(ends_.process.output, false)) {
  }
  while (ReadOutput(ends_.process.error, true)) {
  }
}

void SessionPump::OnControl() {
  std::array<char, 256> word{};
  const ssize_t got = ::recv(ends_.process.control.get(), word.data(), word.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    TakeWord(std::string(word.data(), static_cast<size_t>(got)));
    return;
  }
  EndBecause("what looked after the session was killed");
  ended_ = true;
  DrainOutput();
}

void SessionPump::TakeWord(const std::string& message) {
  std::istringstream in(message);
  std::string word;
  int first = 0;
  int second = 0;
  in >> word >> first >> second;
  if (word == kKeeperFailed) {
    exit_code_ = first == ENOENT || first == ENOTDIR ? kNoSuchProgram : kCannotRun;
    EndBecause(std::generic_category().message(first));
    ended_ = true;
  } else if (word == kKeeperEnded) {
    exit_code_ = static_cast<uint32_t>(first);
    signal_ = static_cast<uint32_t>(second);
    ended_ = true;
    DrainOutput();
  }
}

}  // namespace imgd
