#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "common/clock.h"
#include "common/files.h"

namespace imgd::cli {

/// Ctrl-C, for commands that follow something: calls that wait are broken off instead of the process.
/// Thread-safe.
class Interrupt {
 public:
  Interrupt() = default;
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  /// Takes SIGINT and SIGTERM from here on. Call it before other threads start (before the first call to the
  /// daemon): they inherit the signal mask.
  void ListenToSignals();

  /// As if `signal` had come.
  void Trigger(int signal);

  bool Triggered() const { return ExitCode() != 0; }

  /// 128 + the signal; 0 when none has come.
  int ExitCode() const;

  /// Waits until an interrupt or for `time`; true when interrupted.
  bool WaitFor(Duration time) const;

  /// Calls `action` (from another thread, which may ask for ExitCode() and nothing else here) when an
  /// interrupt comes while the scope lives, or at once when one has come.
  class Scope {
   public:
    Scope(Interrupt& interrupt, std::function<void()> action);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Interrupt& interrupt_;
  };

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<int> signal_ = 0;                            ///< written with mutex_
  std::map<const Scope*, std::function<void()>> actions_;  ///< guarded by mutex_
  UniqueFd stop_;                                          ///< eventfd that ends the listener
  std::thread listener_;
};

}  // namespace imgd::cli
