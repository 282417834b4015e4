#include "server/rpc/note_limit.h"

namespace imgd {
namespace {

constexpr Duration kNotesPeriod = std::chrono::minutes(1);
constexpr int kMostInPeriod = 60;

}  // namespace

bool NoteLimit::MayNote(const std::string& who, Instant now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(notes_, [now](const auto& known) { return known.second.since + kNotesPeriod <= now; });
  return ++notes_.try_emplace(who, Notes{.since = now}).first->second.count <= kMostInPeriod;
}

}  // namespace imgd
