#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/files.h"
#include "imgd/v1/session.pb.h"

namespace imgd {

/// Frames from the person on their way to a session's program: one waits here, and who brings the next waits
/// with it, so that a program that reads slowly holds the person up and fills no memory. Thread-safe.
class SessionInbox {
 public:
  SessionInbox();

  /// Waits until the frame before is taken; false when the session is over.
  bool Push(v1::SessionFrame frame);
  /// The frame that waits.
  std::optional<v1::SessionFrame> Take();
  /// Nothing comes any more, and nobody takes any.
  void Close();
  bool closed() const;

  /// Readable when there is a frame, or the end.
  int event_fd() const { return wake_.get(); }
  /// It was seen.
  void ClearEvent();

 private:
  void Wake();

  const UniqueFd wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::SessionFrame> frame_;  // guarded by mutex_
  bool closed_ = false;                    // guarded by mutex_
};

}  // namespace imgd
