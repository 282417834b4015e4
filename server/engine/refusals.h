#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"

namespace imgd {

/// What is said of callers that are refused, so that who asks again and again, with ever other words, fills
/// neither the log nor the events: each text of a peer once an hour, ten texts of each, and of what is left
/// out the count at 10, 100, 1000 and so on. Thread-safe.
class Refusals {
 public:
  /// Of peers beyond `most_peers` an hour there are ten texts in all.
  explicit Refusals(size_t most_peers) : most_peers_(most_peers) {}

  /// What to say of it; nothing where it is only counted. `peer`: as people are to read it.
  std::optional<std::string> Note(const std::string& peer, const std::string& text, Instant now) {
    return Note(peer, text, now, text);
  }
  /// The same of a text whose words differ where nothing else does: `same` is what tells it from others.
  std::optional<std::string> Note(const std::string& peer, const std::string& text, Instant now,
                                  const std::string& same);

 private:
  struct Peer {
    Instant since{};
    std::set<std::string> texts;
    uint64_t left_out = 0;
  };

  const size_t most_peers_;
  std::mutex mutex_;
  std::map<std::string, Peer> peers_;  // guarded by mutex_
};

}  // namespace imgd
