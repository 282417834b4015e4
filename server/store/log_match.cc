#include "server/store/log_match.h"

#include <algorithm>
#include <array>
#include <optional>

namespace imgd {
namespace {

constexpr size_t kMarkWithin = 48;
/// What is looked at as one when few lines are grave.
constexpr size_t kPieceBytes = 32 << 10;

struct LevelWord {
  std::string_view word;
  LogLevel level;
  bool marks;  ///< programs write it in front of a line
};
constexpr std::array kLevelWords = {
    LevelWord{"error", LogLevel::kError, true},      LevelWord{"critical", LogLevel::kError, true},
    LevelWord{"fatal", LogLevel::kError, true},      LevelWord{"exception", LogLevel::kError, false},
    LevelWord{"traceback", LogLevel::kError, false}, LevelWord{"abort", LogLevel::kError, false},
    LevelWord{"aborted", LogLevel::kError, false},   LevelWord{"segfault", LogLevel::kError, false},
    LevelWord{"warn", LogLevel::kWarning, true},     LevelWord{"warning", LogLevel::kWarning, true},
    LevelWord{"info", LogLevel::kInfo, true},        LevelWord{"debug", LogLevel::kDebug, true},
    LevelWord{"trace", LogLevel::kDebug, true},
};
/// One of these is in every line of that level.
constexpr std::array<std::string_view, 8> kGraveWords = {"warn",      "error", "critical", "fatal",
                                                         "exception", "trace", "abort",    "segfault"};
constexpr size_t kLongestWord = 9;

constexpr char Small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }
constexpr bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool IsOfWord(char c) { return IsLetter(Small(c)) || (c >= '0' && c <= '9') || c == '_'; }

const LevelWord* FindLevelWord(std::string_view word) {
  if (word.size() < 4 || word.size() > kLongestWord) return nullptr;
  const auto same = [&word](const LevelWord& known) {
    return known.word.size() == word.size() && std::equal(word.begin(), word.end(), known.word.begin(),
                                                          [](char a, char b) { return Small(a) == b; });
  };
  const auto found = std::find_if(kLevelWords.begin(), kLevelWords.end(), same);
  return found == kLevelWords.end() ? nullptr : &*found;
}

bool SameFolded(const char* text, std::string_view needle) {
  return std::equal(needle.begin(), needle.end(), text, [](char n, char c) { return Small(c) == n; });
}

/// Where the text of a stored line begins: behind three tabs.
size_t TextBegin(std::string_view line) {
  size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    at = line.find('\t', at);
    if (at == std::string_view::npos) return line.size();
    ++at;
  }
  return at;
}

}  // namespace

LogLevel LevelOf(std::string_view text) {
  std::optional<LogLevel> gravest;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && IsOfWord(text[end])) ++end;
    if (const LevelWord* word = FindLevelWord(text.substr(begin, end - begin))) {
      const bool closed = end < text.size() && std::string_view("])>:").find(text[end]) != std::string::npos;
      if (word->marks && closed && begin <= kMarkWithin + 1) return word->level;
      if (word->level != LogLevel::kInfo) gravest = std::max(gravest.value_or(word->level), word->level);
    }
    begin = end + 1;
  }
  return gravest.value_or(LogLevel::kInfo);
}

size_t FindFolded(std::string_view text, std::string_view needle, size_t from) {
  constexpr size_t kStride = 64;
  const size_t n = needle.size();
  if (n == 0) return from <= text.size() ? from : std::string_view::npos;
  if (n > text.size()) return std::string_view::npos;
  const size_t ends = text.size() - n + 1;
  const auto mask = [](char c) { return static_cast<unsigned char>(IsLetter(c) ? 0x20 : 0); };
  const auto first = static_cast<unsigned char>(needle.front());
  const auto last = static_cast<unsigned char>(needle.back());
  const unsigned char first_mask = mask(needle.front());
  const unsigned char last_mask = mask(needle.back());
  const auto* begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = begin + n - 1;
  size_t at = from;
  // The first and the last letter of 64 places at once: written so that compilers make vectors of it.
  for (; at + kStride <= ends; at += kStride) {
    unsigned char any = 0;
    for (size_t k = 0; k < kStride; ++k) {
      const auto a = static_cast<unsigned char>(begin[at + k] | first_mask);
      const auto b = static_cast<unsigned char>(end[at + k] | last_mask);
      any = static_cast<unsigned char>(any | static_cast<unsigned char>((a == first) & (b == last)));
    }
    if (any == 0) continue;
    for (size_t k = 0; k < kStride; ++k) {
      if (SameFolded(text.data() + at + k, needle)) return at + k;
    }
  }
  for (; at < ends; ++at) {
    if (SameFolded(text.data() + at, needle)) return at;
  }
  return std::string_view::npos;
}

LineFilter::LineFilter(std::string_view contains, LogLevel least) : needle_(contains), least_(least) {
  std::transform(needle_.begin(), needle_.end(), needle_.begin(), Small);
  for (const char c : needle_) {
    if (c == '\n' || c == '\\') encoded_ += '\\';
    encoded_ += c == '\n' ? 'n' : c;
  }
}

bool LineFilter::Takes(const StoredLine& line) const {
  if (!needle_.empty() && FindFolded(line.text, needle_) == std::string_view::npos) return false;
  return least_ == LogLevel::kDebug || LevelOf(line.text) >= least_;
}

void LineFilter::Choose(std::string_view text, std::vector<StoredLine>& out) const {
  if (!needle_.empty()) return ChooseByText(text, out);
  while (!text.empty()) {
    const size_t newline = text.find('\n', std::min(kPieceBytes, text.size()) - 1);
    const auto piece = text.substr(0, newline == std::string_view::npos ? text.size() : newline + 1);
    if (MayHaveLevel(piece)) ChooseEach(piece, out);
    text.remove_prefix(piece.size());
  }
}

bool LineFilter::MayHaveLevel(std::string_view text) const {
  if (least_ < LogLevel::kWarning) return true;
  return std::any_of(kGraveWords.begin(), kGraveWords.end(), [&text](std::string_view word) {
    return FindFolded(text, word) != std::string_view::npos;
  });
}

void LineFilter::ChooseEach(std::string_view text, std::vector<StoredLine>& out) const {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    // What it says is looked at before it is taken apart: few lines may be wanted.
    if (least_ != LogLevel::kDebug && LevelOf(line.substr(TextBegin(line))) < least_) continue;
    if (auto decoded = DecodeLine(line)) out.push_back(std::move(*decoded));
  }
}

void LineFilter::ChooseByText(std::string_view text, std::vector<StoredLine>& out) const {
  size_t at = 0;
  while ((at = FindFolded(text, encoded_, at)) != std::string_view::npos) {
    const size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(begin, end - begin);
    const size_t words = begin + TextBegin(line);
    if (at < words) {
      at = std::min(words, end);  // it was in the number or the time
      continue;
    }
    // A part of an escape may have looked like it.
    auto decoded = DecodeLine(line);
    if (decoded && Takes(*decoded)) out.push_back(std::move(*decoded));
    at = end;
  }
}

}  // namespace imgd
