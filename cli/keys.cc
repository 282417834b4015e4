#include "cli/keys.h"

#include <map>

namespace imgd::cli {
namespace {

using Kind = Key::Kind;

constexpr char kEscapeByte = '\x1b';

/// By what follows on "ESC [" or "ESC O" (xterm, rxvt, Linux's console, tmux).
const std::map<std::string_view, Kind>& Sequences() {
  static const std::map<std::string_view, Kind> kSequences = {
      {"A", Kind::kUp},    {"B", Kind::kDown}, {"C", Kind::kRight},   {"D", Kind::kLeft},
      {"H", Kind::kHome},  {"F", Kind::kEnd},  {"1~", Kind::kHome},   {"7~", Kind::kHome},
      {"4~", Kind::kEnd},  {"8~", Kind::kEnd}, {"5~", Kind::kPageUp}, {"6~", Kind::kPageDown},
      {"M", Kind::kEnter},
  };
  return kSequences;
}

size_t Utf8Length(unsigned char lead) { return lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1; }

/// One key at the start of `bytes`; returns how many of them it took, 0 where more are needed.
size_t TakeControl(char byte, std::vector<Key>& keys) {
  switch (byte) {
    case '\r':
    case '\n':
      keys.push_back({.kind = Kind::kEnter});
      break;
    case '\t':
      keys.push_back({.kind = Kind::kTab});
      break;
    case '\b':
    case '\x7f':
      keys.push_back({.kind = Kind::kErase});
      break;
    default:
      break;
  }
  return 1;
}

size_t TakeSequence(std::string_view bytes, std::vector<Key>& keys) {
  if (bytes.size() < 2) return 0;
  if (bytes[1] != '[' && bytes[1] != 'O') {
    // Esc, and another key right after it.
    keys.push_back({.kind = Kind::kEscape});
    return 1;
  }
  for (size_t end = 2; end < bytes.size(); ++end) {
    const char c = bytes[end];
    if (c >= 0x20 && c < 0x40) continue;  // a parameter
    const auto found = Sequences().find(bytes.substr(2, end - 1));
    if (found != Sequences().end()) keys.push_back({.kind = found->second});
    return end + 1;
  }
  return 0;
}

size_t TakeKey(std::string_view bytes, std::vector<Key>& keys) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (bytes[0] == kEscapeByte) return TakeSequence(bytes, keys);
  if (lead < 0x20 || lead == 0x7F) return TakeControl(bytes[0], keys);
  const size_t length = Utf8Length(lead);
  if (bytes.size() < length) return 0;
  keys.push_back({.kind = Kind::kText, .text = std::string(bytes.substr(0, length))});
  return length;
}

}  // namespace

std::vector<Key> KeyReader::Take(std::string_view bytes) {
  pending_ += bytes;
  std::vector<Key> keys;
  size_t at = 0;
  while (at < pending_.size()) {
    const size_t taken = TakeKey(std::string_view(pending_).substr(at), keys);
    if (taken == 0) break;
    at += taken;
  }
  pending_.erase(0, at);
  return keys;
}

std::vector<Key> KeyReader::Settle() {
  std::vector<Key> keys;
  if (pending_.starts_with(kEscapeByte)) keys.push_back({.kind = Kind::kEscape});
  pending_.clear();
  return keys;
}

}  // namespace imgd::cli
