#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/log_format.h"

namespace imgd {

/// How grave a line is.
enum class LogLevel : int { kDebug = 1, kInfo = 2, kWarning = 3, kError = 4 };

/// By what the line begins with ("[error] ...", "2026-11-24 WARNING: ..."), or else by the gravest of its
/// words; kInfo where neither tells. The dashboard colours lines the same way (web/src/lib/log_level.ts).
LogLevel LevelOf(std::string_view text);

/// Where `needle`, which has no capital letters (A to Z), is in `text` from `from` on, whichever letters
/// are capital there; npos where it is not. Cost: some gigabytes a second.
size_t FindFolded(std::string_view text, std::string_view needle, size_t from = 0);

/// Which lines are wanted; as it is made, all.
class LineFilter {
 public:
  LineFilter() = default;
  /// Lines with `contains` in them, in capital or small letters, that are at least so grave.
  LineFilter(std::string_view contains, LogLevel least);

  bool TakesAll() const { return needle_.empty() && least_ == LogLevel::kDebug; }
  bool Takes(const StoredLine& line) const;

  /// Adds those of `text`, whole lines as they are stored (log_format.h), that are wanted.
  void Choose(std::string_view text, std::vector<StoredLine>& out) const;

 private:
  void ChooseByText(std::string_view text, std::vector<StoredLine>& out) const;
  void ChooseEach(std::string_view text, std::vector<StoredLine>& out) const;
  bool MayHaveLevel(std::string_view text) const;

  std::string needle_;   ///< in small letters
  std::string encoded_;  ///< as lines have it in files
  LogLevel least_ = LogLevel::kDebug;
};

}  // namespace imgd
