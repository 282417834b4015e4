#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <utility>

namespace imgd::cli {
Interrupt::~Interrupt() {
  if (!listener_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  listener_.join();
}

void Interrupt::Listen(const UniqueFd& signals) {
  std::array<pollfd, 2> fds = {{{.fd = signals.get(), .events = POLLIN, .revents = 0},
                                {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
  while (true) {
    const bool leaves = Triggered() && grace_;
    const auto wait = leaves ? std::chrono::ceil<std::chrono::milliseconds>(*grace_).count() : -1;
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(wait));
    if (ready < 0) continue;
    if (ready == 0) Leave();
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals.get(), &info, sizeof info) != sizeof info) continue;
    // A second one means it: whatever still holds us up is left behind.
    if (Triggered()) Leave();
    Trigger(static_cast<int>(info.ssi_signo));
  }
}

void Interrupt::BeforeLeaving(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  before_leaving_ = std::move(action);
}

void Interrupt::Leave() {
  const std::lock_guard lock(mutex_);
  if (before_leaving_) before_leaving_();
  _exit(ExitCode());
}

void Interrupt::ListenToSignals(const std::vector<int>& also) {
  if (listener_.joinable()) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  for (const int signal : also) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  // Without descriptors the signals keep their usual effect: they end the process.
  if (!signals.valid() || !stop_.valid()) return;
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  listener_ = std::thread([this, signals = std::move(signals)] { Listen(signals); });
}

void Interrupt::Trigger(int signal) {
  const std::lock_guard lock(mutex_);
  signal_ = signal;
  for (const auto& [scope, action] : actions_) action();
  changed_.notify_all();
}

int Interrupt::ExitCode() const {
  const int signal = signal_;  // without the lock: actions, which run under it, may ask
  return signal == 0 ? 0 : 128 + signal;
}

bool Interrupt::WaitFor(Duration time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return signal_ != 0; });
}

Interrupt::Scope::Scope(Interrupt& interrupt, std::function<void()> action) : interrupt_(interrupt) {
  const std::lock_guard lock(interrupt_.mutex_);
  if (interrupt_.signal_ != 0) action();
  interrupt_.actions_[this] = std::move(action);
}

Interrupt::Scope::~Scope() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.actions_.erase(this);
}

}  // namespace imgd::cli
