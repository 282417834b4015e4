#pragma once

#include <functional>
#include <string>

#include "agent/session/session_inbox.h"
#include "agent/session/session_process.h"
#include "common/clock.h"
#include "common/files.h"
#include "imgd/v1/session.pb.h"

namespace imgd {

/// What the pump stands between and the person.
struct PumpEnds {
  SessionProcess process;  ///< of a connection: its socket as input and output alone; of a forward: nothing
  UniqueFd rank;           ///< pidfd of the rank that the session is beside; invalid without one
  std::string rank_name;   ///< "rank 0 of job 7", for people
};

/// Carries frames between a session's program (or connection) and the person, until either is gone. Used by
/// one thread; only the inbox is another's too. Only the sending blocks.
class SessionPump {
 public:
  using Send = std::function<bool(v1::SessionFrame)>;  ///< false: the person can't be reached any more

  /// With an empty `send` the output goes nowhere but into Tail().
  SessionPump(PumpEnds ends, SessionInbox* inbox, Send send);
  /// Ends what the program began, without waiting for it.
  ~SessionPump();

  /// Waits for the next thing to happen, at most so many milliseconds (-1: for ever), and carries it. False
  /// once all is over.
  bool Step(int wait_ms);
  /// How it ended. Not where the person has gone, who is told nothing.
  v1::SessionEnd End() const;
  /// The person is gone.
  bool gone() const { return gone_; }
  /// The last of what the program wrote.
  const std::string& Tail() const { return tail_; }
  /// Ends the program, and then the session with these words.
  void EndBecause(std::string error);

 private:
  bool HasProcess() const { return ends_.process.keeper != 0; }
  bool Over() const;
  void OnInbox();
  void TakeFrames();
  void TakeFrame(v1::SessionFrame frame);
  void EndInput();
  void WriteInput();
  /// Reads once; false when there is nothing now or never again.
  bool ReadOutput(UniqueFd& fd, bool is_error);
  void DrainOutput();
  void EndConnectionsOutput(bool in_order);
  /// Carries a frame to the person, or notes that there is none.
  void SendFrame(v1::SessionFrame frame);
  /// Input that the program does not take keeps the end of the call from being read: asks for it by a frame
  /// with nothing in it.
  void AskForPerson();
  void OnControl();
  void TakeWord(const std::string& word);

  PumpEnds ends_;
  SessionInbox* inbox_;
  Send send_;
  std::string pending_;       ///< input that the program has not taken yet
  Instant sent_{};            ///< the last frame was, or input began to wait
  bool input_ends_ = false;   ///< nothing of what comes is input any more
  bool output_ends_ = false;  ///< of a connection
  bool ended_ = false;        ///< the keeper has, and so all of the program; or the connection
  bool gone_ = false;
  bool told_to_end_ = false;
  uint32_t exit_code_ = 0;
  uint32_t signal_ = 0;
  std::string error_;
  std::string tail_;
};

}  // namespace imgd
