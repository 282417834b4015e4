#include "common/utf8.h"

#include <algorithm>

namespace imgd {
namespace {

/// Length of the character that `text` begins with; 0 when it is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  // The second byte's range keeps out overlong forms, surrogates and what is beyond U+10FFFF.
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

/// `character`: one of UTF-8, whole.
bool IsControl(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;  // C1
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  // U+2028 to U+202E, U+2066 to U+2069.
  return (byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) ||
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string ToUtf8(std::string_view text) {
  std::string out;
  while (const auto bad = FindInvalidUtf8(text)) {
    out += text.substr(0, *bad);
    out += "\xEF\xBF\xBD";
    text.remove_prefix(*bad + 1);
  }
  return out += text;
}

std::optional<size_t> FindControl(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, CharacterLength(text.substr(at)));
    if (IsControl(text.substr(at, length))) return at;
    at += length;
  }
  return std::nullopt;
}

std::string OneLine(std::string_view text) {
  std::string out = ToUtf8(text);
  for (size_t at = 0; at < out.size(); ++at) {
    const auto found = FindControl(std::string_view(out).substr(at));
    if (!found) break;
    at += *found;
    out.replace(at, CharacterLength(std::string_view(out).substr(at)), " ");
  }
  return out;
}

}  // namespace imgd
