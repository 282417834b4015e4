#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "server/notify/courier.h"

namespace imgd {

/// Of one target, since imgd began.
struct NotifyCounts {
  uint64_t sent = 0;
  uint64_t failed_tries = 0;
  uint64_t given_up = 0;  ///< without having been delivered
  uint64_t dropped = 0;   ///< since too many waited
  uint64_t pending = 0;   ///< now
};

struct NotifierSettings {
  Duration give_up_after = std::chrono::hours(24);
  Duration first_rest = std::chrono::seconds(1);  ///< of a target that failed; doubles each time
  Duration most_rest = std::chrono::minutes(5);
};

/// Delivers notices on threads of its own, as many as there are targets, so that nobody waits for a receiver,
/// however many of them hang. A target has one delivery at a time, and rests longer after each that fails;
/// what failed comes after all that was not tried yet, however much of it there is. One that is too old is
/// given up, with a line in the log. Thread-safe.
class Notifier {
 public:
  /// `settled` is told, from any thread, which notices need no delivery any more.
  Notifier(Couriers couriers, NotifierSettings settings, const Clock* clock,
           std::function<void(std::vector<std::string> ids)> settled);
  /// Breaks off what is under way; what is not delivered then is not settled.
  ~Notifier();
  void Start();
  void Stop();

  /// Does not block. A notice for a target that there is none of is given up. What is added before Start() is
  /// left from an earlier life, and counts as what failed then.
  void Add(Notification notice);
  /// Of a job that was deleted: its notices are settled undelivered, those under way after the present try.
  void Drop(JobId job);
  /// One was left out, since too many wait.
  void NoteDropped(const std::string& target);
  std::map<std::string, NotifyCounts> Counts() const;

 private:
  struct Waiting {
    Notification notice;
    bool failed = false;
  };
  struct Lane {
    std::unique_ptr<Courier> courier;
    std::deque<Waiting> waiting;  ///< first those that have not failed
    bool busy = false;            ///< with the first of these
    bool last_try = false;        ///< of that one, whose job was deleted meanwhile
    int failures = 0;             ///< in a row
    Instant rests_until{};
    NotifyCounts counts;
  };

  /// Behind the others of its kind, and behind what is under way.
  static void Insert(Lane& lane, Waiting waiting);
  void Work();
  /// A lane that may deliver now, or nullptr; `next` is when one may.
  Lane* ReadyLane(Instant& next);
  /// After a delivery of its first notice; returns what is settled.
  std::vector<std::string> Take(const std::string& name, Lane& lane, const Status& delivered);
  std::vector<std::string> GiveUpOld(const std::string& name, Lane& lane, const std::string& why);

  NotifierSettings settings_;
  const Clock* clock_;
  std::function<void(std::vector<std::string>)> settled_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Lane> lanes_;  ///< guarded by mutex_, but for couriers, each of whoever made it busy
  bool started_ = false;               ///< guarded by mutex_
  bool stopping_ = false;              ///< guarded by mutex_
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace imgd
