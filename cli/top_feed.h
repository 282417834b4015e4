#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "cli/client.h"
#include "cli/top_data.h"

namespace imgd::cli {

/// Keeps what `imgcli top` shows up to date: asks the daemon in a thread of its own, so that keys are
/// answered at once also while the daemon is away. Thread-safe, but for Begin, which comes first.
class TopFeed {
 public:
  /// `actor`: who cancels. Client and interrupt outlive the feed;
  /// after Start the client is the feed's alone.
  TopFeed(Client& client, Interrupt& interrupt, std::string actor)
      : client_(client), interrupt_(interrupt), actor_(std::move(actor)) {}
  TopFeed(const TopFeed&) = delete;
  TopFeed& operator=(const TopFeed&) = delete;

  ~TopFeed() { Stop(); }

  /// Ends the thread, breaking off what is being asked by an interrupt; but orders to cancel are still sent,
  /// for some seconds. Errors: of each that came to nothing, or may have.
  Errors Stop();

  /// Asks for the cluster, in this thread. Errors: as the daemon's.
  Reply<void> Begin();

  /// Asks for it again and again from here on. `changed` is called from the feed's thread when there is
  /// something new to show.
  void Start(std::function<void()> changed);

  /// What is known now.
  TopData Now() const;

  /// The job to keep up to date besides the cluster; 0 for none.
  void Open(uint64_t job);

  /// Asks for the job's end, after those that were asked for before; TopData::message says what became of it.
  void Cancel(uint64_t job, bool checkpoint);

 private:
  struct CancelOrder {
    uint64_t job = 0;
    bool checkpoint = false;
  };

  void Loop();
  /// The next thing to do is there, or time is up. False at the end.
  bool AwaitWork();
  /// Sends the orders that there are, in their turn.
  void SendOrders();
  Reply<void> DoCancel(const CancelOrder& order);
  Reply<TopData> FetchCluster();
  Reply<void> FetchJobs(TopData& data);
  void FetchLosses(TopData& data);
  void FetchJob(uint64_t id);
  /// Takes the answer over, or keeps the old one and says since when the daemon is away.
  void Keep(Reply<TopData> fetched);
  void Tell(std::string message, Style style);

  Client& client_;
  Interrupt& interrupt_;
  const std::string actor_;
  std::function<void()> changed_;
  std::map<uint64_t, uint64_t>
      losses_at_;  ///< step of each job up to which its losses are there; the feed's thread

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  TopData data_;  // all below: guarded by mutex_
  uint64_t open_ = 0;
  std::deque<CancelOrder> orders_;  ///< not answered yet
  Errors lost_;                     ///< of orders that failed when nobody looked any more
  bool hurry_ = false;
  bool ending_ = false;
  bool over_ = false;  ///< the thread does nothing more
  std::thread thread_;
};

}  // namespace imgd::cli
