#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace imgd::cli {
namespace {

void Listen(Interrupt& interrupt, const UniqueFd& signals, int stop) {
  std::array<pollfd, 2> fds = {
      {{.fd = signals.get(), .events = POLLIN, .revents = 0}, {.fd = stop, .events = POLLIN, .revents = 0}}};
  while (true) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals.get(), &info, sizeof info) != sizeof info) continue;
    // A second one means it: whatever still holds us up is left behind.
    if (interrupt.Triggered()) _exit(interrupt.ExitCode());
    interrupt.Trigger(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace

Interrupt::~Interrupt() {
  if (!listener_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  listener_.join();
}

void Interrupt::ListenToSignals() {
  if (listener_.joinable()) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  // Without descriptors the signals keep their usual effect: they end the process.
  if (!signals.valid() || !stop_.valid()) return;
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  listener_ =
      std::thread([this, signals = std::move(signals), stop = stop_.get()] { Listen(*this, signals, stop); });
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
