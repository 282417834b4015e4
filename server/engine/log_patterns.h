#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "server/core/types.h"

namespace imgd {

/// What is done about failures whose log has a line that a regular expression finds.
struct LogPattern {
  std::string name;   ///< unique
  std::string match;  ///< in RE2's syntax, anywhere in the line; empty: the built-in one of that name
  PatternAction action = PatternAction::kLabel;
  std::string label;        ///< what such a line means, for people; may be empty
  bool collective = false;  ///< as in LogMatch
  bool gpu = false;         ///< it tells of a GPU: not looked for where a rank has none
  bool ignored = false;     ///< the built-in one of that name is switched off
  bool operator==(const LogPattern&) const = default;
};

/// Those that imgd knows by itself: what CUDA, NCCL, the driver and the system say of broken GPUs, full
/// memory and full disks. What breaks everything else comes first.
const std::vector<LogPattern>& BuiltInPatterns();

/// The operator's, then the built-in ones (where `built_in`). One of the operator's that has the name of a
/// built-in one stands in that one's place, and is of collectives or GPUs as that is.
std::vector<LogPattern> AllPatterns(std::vector<LogPattern> own, bool built_in);

/// Why the regular expression can't be used; empty where it can.
std::string WhyNoPattern(const std::string& match);

/// Looks through the last lines of ranks that failed. Time and memory are linear in the lines, whatever they
/// and the patterns are. Thread-safe.
class LogMatcher {
 public:
  /// Patterns as AllPatterns() gives them, each with a good expression.
  explicit LogMatcher(std::vector<LogPattern> patterns);
  ~LogMatcher();

  /// By the first pattern that any of the lines matches, its first such line. `on_gpu`: the rank has one.
  std::optional<LogMatch> Find(const std::vector<std::string>& lines, bool on_gpu = true) const;
  /// The same of the lines of a text.
  std::optional<LogMatch> FindIn(std::string_view text, bool on_gpu = true) const;

 private:
  struct Compiled;
  std::vector<LogPattern> patterns_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace imgd
