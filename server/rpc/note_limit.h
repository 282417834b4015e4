#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/clock.h"

namespace imgd {

/// How often somebody may have an event written by what changes nothing, so that nobody who may only look
/// fills the record: 60 times within a minute. Thread-safe.
class NoteLimit {
 public:
  bool MayNote(const std::string& who, Instant now);

 private:
  struct Notes {
    Instant since{};
    int count = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Notes> notes_;  // guarded by mutex_
};

}  // namespace imgd
