#include "server/engine/refusals.h"

#include <fmt/format.h>

namespace imgd {
namespace {

constexpr Duration kNotedFor = std::chrono::hours(1);
constexpr size_t kMostTexts = 10;

bool IsPowerOfTen(uint64_t count) {
  while (count >= 10 && count % 10 == 0) count /= 10;
  return count == 1;
}

}  // namespace

std::optional<std::string> Refusals::Note(const std::string& peer, const std::string& text, Instant now,
                                          const std::string& same) {
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [now](const auto& known) { return known.second.since + kNotedFor <= now; });
  const bool one_of_many = !peers_.contains(peer) && peers_.size() >= most_peers_;
  const std::string name = one_of_many ? "others" : peer;
  Peer& known = peers_.try_emplace(name, Peer{.since = now, .texts = {}}).first->second;
  if (known.texts.size() < kMostTexts && known.texts.insert(same).second) return text;
  ++known.left_out;
  if (known.left_out < 10 || !IsPowerOfTen(known.left_out)) return std::nullopt;
  return fmt::format("{} more refusals of {} within an hour were left out: only their count is told",
                     known.left_out, name);
}

}  // namespace imgd
