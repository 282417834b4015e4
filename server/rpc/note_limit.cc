#include "server/rpc/note_limit.h"

namespace imgd {

bool NoteLimit::MayNote(const std::string& who, Instant now) {
  constexpr Duration kPeriod = std::chrono::minutes(1);
  constexpr int kMost = 60;
  const std::lock_guard lock(mutex_);
  std::erase_if(notes_, [now](const auto& known) { return known.second.since + kPeriod <= now; });
  return ++notes_.try_emplace(who, Notes{.since = now}).first->second.count <= kMost;
}

}  // namespace imgd
