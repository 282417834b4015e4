#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::doctor {

enum class Grade {
  kGood,
  kUnknown,  ///< could not be looked at, or does not matter here
  kWarning,  ///< works, and not as well as it could
  kFault,    ///< keeps jobs from running
};

/// What one check says.
struct Verdict {
  Grade grade = Grade::kGood;
  std::string what;    ///< what was found, in some words
  std::string advice;  ///< what to do; empty where all is well
};

Verdict Good(std::string what);
Verdict Unknown(std::string what);
Verdict Warning(std::string what, std::string advice);
Verdict Fault(std::string what, std::string advice);

/// A check with what it said.
struct Line {
  std::string_view check;  ///< "driver": one word, by which documents and scripts know it
  Verdict verdict;
};

/// One check: a pure function of what was gathered.
template <typename Facts>
struct Check {
  std::string_view name;
  Verdict (*look)(const Facts&);
};

/// What each of the checks says of the facts, in their order.
template <typename Facts, size_t kCount>
std::vector<Line> Examine(const Check<Facts> (&checks)[kCount], const Facts& facts) {
  std::vector<Line> lines;
  for (const auto& check : checks) lines.push_back({check.name, check.look(facts)});
  return lines;
}

/// For people: a line for each check, with what to do below it, and a line that counts them.
std::string ReportText(const std::vector<Line>& lines);
/// For scripts: {"faults": 1, "warnings": 0, "checks": [{"check", "grade", "what", "advice"}, ...]}.
std::string ReportJson(const std::vector<Line>& lines);
/// Errors: kInvalidArgument where `format` is neither text nor json.
Result<std::string> Report(const std::vector<Line>& lines, std::string_view format);

/// 6 with a fault, else 0 (docs/exit-codes.md).
int ExitCodeOf(const std::vector<Line>& lines);

}  // namespace imgd::doctor
