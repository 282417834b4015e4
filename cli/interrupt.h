#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

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

  /// Takes SIGINT and SIGTERM from here on, and those of `also` that are not ignored (nohup). Call it before
  /// other threads start (before the first call to the daemon): they inherit the signal mask.
  void ListenToSignals(const std::vector<int>& also = {});

  /// From here on what still holds the process up so long after an interrupt, as an output that nobody reads,
  /// is left behind. Call it before ListenToSignals().
  void LeaveAfter(Duration grace) { grace_ = grace; }
  /// What is done right before the process ends in the middle of something, in another thread; empty:
  /// nothing.
  void BeforeLeaving(std::function<void()> action);
  /// Ends the process with ExitCode() in the middle of whatever it does.
  [[noreturn]] void Leave();

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
  std::optional<Duration> grace_;
  std::function<void()> before_leaving_;                   ///< guarded by mutex_
  std::atomic<int> signal_ = 0;                            ///< written with mutex_
  std::map<const Scope*, std::function<void()>> actions_;  ///< guarded by mutex_
  void Listen(const UniqueFd& signals);

  UniqueFd stop_;  ///< eventfd that ends the listener
  std::thread listener_;
};

}  // namespace imgd::cli
