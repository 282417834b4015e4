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

void EndOnSignals(std::function<bool(int)> goes_on, std::function<void(int)> on_end) {
  std::thread([goes_on = std::move(goes_on), on_end = std::move(on_end)] {
    const sigset_t set = EndingSignals();
    int number = 0;
    while (sigwait(&set, &number) != 0 || goes_on(number)) {
    }
    // A thread that hangs in a write may hold what `on_end` needs.
    EndAfterTimeToReport(128 + number);
    on_end(number);
    ::_exit(128 + number);
  }).detach();
}

}  // namespace imgd::trainer
