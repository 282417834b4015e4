#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/follow.h"
#include "agent/run_dir.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

/// Sends the events and log lines of one run's ranks to the daemon: in batches of at most about 256 KiB, at
/// most a window ahead of what the daemon has acknowledged. Not thread-safe.
class RunRelay {
 public:
  using Send = std::function<void(v1::ConnectRequest)>;

  RunRelay(const RunDir& dir, const RunSpec& spec);

  /// A new connection: everything after what the daemon has stored is sent (again).
  void GoOn(const std::vector<v1::StreamPosition>& positions);
  void Acknowledge(const v1::EventsAck& ack);
  void Acknowledge(const v1::LogsAck& ack);
  /// Sends what there is and the windows allow. True where there may be more at once.
  bool Pump(const Send& send);
  /// No process of the run is left: what is there now is all that there will be.
  void SetGone(const RunRecord& record, bool lines_are_known);
  /// The last line of a rank's log that was sent; empty when there is none.
  const std::string& LastLine(uint32_t local_rank) const { return streams_[local_rank].log.last_text(); }
  /// True when all of it was sent and acknowledged.
  bool Drained() const;

 private:
  struct Stream {
    EventFollower events;
    LogFollower log;
    Window event_window;
    Window log_window;
    bool events_at_end = false;  ///< nothing was left to read after SetGone
    bool log_at_end = false;
  };
  Stream* OfRank(uint32_t rank);
  bool PumpEvents(uint32_t rank, Stream& stream, const Send& send);
  void PumpLog(uint32_t rank, Stream& stream, const Send& send);

  RunKey key_;
  uint32_t first_rank_;
  std::vector<Stream> streams_;  ///< by local rank
  bool gone_ = false;
};

}  // namespace imgd
