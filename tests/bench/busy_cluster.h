#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "server/core/reactor.h"

/// For `./run bench scheduler`: the core as it is inside of a daemon with much to do.
namespace imgd {

struct BusySize {
  uint32_t nodes = 1000;
  uint32_t queued = 1000;
  uint32_t running = 500;
};

/// A reactor whose cluster is nearly full: nodes of 8 devices, of three models, in zones and placement
/// groups, every third one spot, a quarter of them on a folder of their own. Jobs of 50 users and 10
/// projects, some of which are at their quota, with five priorities. Of those that run a tenth are elastic,
/// half say how long they may take, half may be preempted; of those that wait half take any node, and a
/// hundredth waits for its retry. The first in the queue needs more than what could be preempted for it, so
/// that victims are looked for in every pass.
class BusyCluster {
 public:
  explicit BusyCluster(BusySize size);

  /// A job ends and another is submitted, and what follows from that is planned. Returns how long
  /// Reactor::Schedule() took, as the engine calls it.
  std::chrono::duration<double, std::milli> Pass();

  const Reactor& reactor() const { return reactor_; }
  Now now() const { return now_; }
  uint64_t starts() const { return starts_; }  ///< of all jobs so far

 private:
  void JoinAll(uint32_t nodes);
  void FillUp(uint32_t running);
  void SubmitRunning();
  void SubmitWaiting(uint32_t jobs);
  void SubmitFirst(uint32_t nodes);
  void FailSome(uint32_t jobs);
  Submission OfSomebody();
  std::chrono::duration<double, std::milli> Settle();
  void End(JobId job, bool well);
  void Obey(const SendPrepare& prepare, Actions& out);
  void Obey(const SendStart& start, Actions& out);
  template <typename Other>
  void Obey(const Other&, Actions&) {}
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  std::mt19937_64 random_{1};
  Reactor reactor_;
  Now now_;
  Actions actions_;             ///< of the batch
  std::vector<JobId> running_;  ///< in the order of their starts
  size_t next_end_ = 0;
  uint64_t starts_ = 0;
};

}  // namespace imgd
