#include "cli/log_text.h"

#include "common/utf8.h"

namespace imgd::cli {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kNoColour = "\x1b[0m";

/// Past all that is from `from` to `to` (ECMA-48, 5.4).
size_t Skip(std::string_view text, size_t at, char from, char to) {
  while (at < text.size() && text[at] >= from && text[at] <= to) ++at;
  return at;
}

/// Past one that is, where there is one.
size_t SkipOne(std::string_view text, size_t at, char from, char to) {
  return at < text.size() && text[at] >= from && text[at] <= to ? at + 1 : at;
}

/// Past a string that a bell or a string terminator ends, or the line.
size_t EndOfString(std::string_view text, size_t at) {
  for (; at < text.size(); ++at) {
    if (text[at] == '\a') return at + 1;
    if (text.substr(at).starts_with("\x1b\\") || text.substr(at).starts_with("\xC2\x9C")) return at + 2;
  }
  return at;
}

/// Where the escape sequence ends that begins at `at`; `at` where none does.
size_t EndOfEscape(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  const auto begins = [&rest](char first, std::string_view seconds) {
    return rest.size() > 1 && rest[0] == first && seconds.find(rest[1]) != std::string_view::npos;
  };
  // The second of each pair is the same in one character of UTF-8 (C1).
  if (begins(kEscape, "[") || begins('\xC2', "\x9B"))
    return SkipOne(text, Skip(text, Skip(text, at + 2, '0', '?'), ' ', '/'), '@', '~');
  if (begins(kEscape, "]PX^_") || begins('\xC2', "\x9D\x90\x98\x9E\x9F")) return EndOfString(text, at + 2);
  if (rest.starts_with(kEscape)) return SkipOne(text, Skip(text, at + 1, ' ', '/'), '0', '~');
  return at;
}

bool IsColour(std::string_view sequence) {
  return sequence.starts_with("\x1b[") && sequence.ends_with('m') &&
         sequence.substr(2).find_first_not_of("0123456789;:") == sequence.size() - 3;
}

}  // namespace

std::string LogText(std::string_view line, bool colours) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  std::string out;
  bool painted = false;
  size_t begin = 0;  // of text that is not out yet
  for (size_t at = 0; at < line.size();) {
    const size_t end = EndOfEscape(line, at);
    if (end == at && line[at] != '\t') {
      ++at;
      continue;
    }
    out += OneLine(line.substr(begin, at - begin));
    const auto sequence = line.substr(at, end - at);
    if (end == at) {
      out += '\t';
    } else if (colours && IsColour(sequence)) {
      out += sequence;
      painted = true;
    }
    begin = at = std::max(end, at + 1);
  }
  out += OneLine(line.substr(begin));
  if (painted) out += kNoColour;
  return out;
}

}  // namespace imgd::cli
