#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "server/auth/authority.h"

namespace imgd {

/// Has the authority's server certificate made anew in time, on a thread of its own.
class Renewal {
 public:
  /// `renewed` is called on that thread after each time. The authority must outlive it.
  Renewal(Authority* authority, Duration period, std::function<void()> renewed);
  ~Renewal();

 private:
  void Run();

  Authority* authority_;
  Duration period_;
  std::function<void()> renewed_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace imgd
