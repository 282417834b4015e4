#include "trainer/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace imgd::trainer {
namespace {

constexpr std::chrono::milliseconds kTimeToReport{500};

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void EndAfterTimeToReport(int code) {
  std::thread([code] {
    std::this_thread::sleep_for(kTimeToReport);
    ::_exit(code);
  }).detach();
}

void BlockEndingSignals() {
  const sigset_t set = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void EndOnSignals(std::function<void(int)> on_signal) {
  std::thread([on_signal = std::move(on_signal)] {
    const sigset_t set = EndingSignals();
    int number = 0;
    while (sigwait(&set, &number) != 0) {
    }
    // A thread that hangs in a write may hold what `on_signal` needs.
    EndAfterTimeToReport(128 + number);
    on_signal(number);
    ::_exit(128 + number);
  }).detach();
}

}  // namespace imgd::trainer
