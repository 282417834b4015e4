#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/error.h"
#include "imgd/v1/node.pb.h"

namespace imgd {

/// One look whether this machine is being taken back, which may take seconds; nothing where it stays. Called
/// from one thread; `stop` breaks it off.
using LookForNotice = std::function<Result<std::optional<v1::NodeNotice>>(std::stop_token stop)>;

/// Where notices come from, by what agent.yaml has for spot_notices; null for "off".
///   auto         EC2's metadata service, on a spot instance of EC2; else nowhere
///   http://...   a metadata service like EC2's, whatever this machine is
///   /PATH        a file that is there as long as the machine is being taken back
/// Errors: kInvalidArgument for anything else.
Result<LookForNotice> NoticesFrom(const std::string& where);

/// "spot" of a machine that its owner may take back at short notice, "on_demand" of another one; empty where
/// nobody says, as outside a cloud. `where`: as above; a file says nothing of it. A metadata service that
/// does not answer is waited for for some seconds.
std::string CapacityFrom(const std::string& where);

/// What EC2 has at spot/instance-action: {"action": "terminate", "time": "2026-01-31T12:00:00Z"}.
/// Errors: kDataLoss for what is no such thing.
Result<v1::NodeNotice> ParseInstanceAction(const std::string& json);

/// A file's first line is the time, as "2026-01-31T12:00:00Z"; with anything else in it nobody knows when.
v1::NodeNotice ParseNoticeFile(const std::string& text);

/// Looks every `period`, on a thread of its own, for a service may not answer. Thread-safe.
class NoticeMonitor {
 public:
  /// The first look is waited for, for at most `patience`, so that an agent that starts on a machine that
  /// leaves says so at once.
  NoticeMonitor(LookForNotice look, Duration period, Duration patience = std::chrono::seconds(2));
  ~NoticeMonitor();

  /// What the latest look that came through found: a service that is away has taken nothing back.
  std::optional<v1::NodeNotice> Latest() const;

 private:
  void Watch(const std::stop_token& stop);
  void Note(const Result<std::optional<v1::NodeNotice>>& found);

  const LookForNotice look_;
  const Duration period_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool looked_ = false;  ///< guarded by mutex_, as the next two
  std::optional<v1::NodeNotice> latest_;
  bool in_trouble_ = false;  ///< which was logged
  std::jthread thread_;
};

}  // namespace imgd
