#include "common/doctor/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace imgd::doctor {
namespace {

constexpr int kSomethingIsBroken = 6;

std::string_view NameOf(Grade grade) {
  switch (grade) {
    case Grade::kGood:
      return "good";
    case Grade::kUnknown:
      return "unknown";
    case Grade::kWarning:
      return "warning";
    case Grade::kFault:
      return "FAULT";
  }
  return "";
}

int Count(const std::vector<Line>& lines, Grade grade) {
  return static_cast<int>(std::count_if(lines.begin(), lines.end(),
                                        [&](const Line& line) { return line.verdict.grade == grade; }));
}

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return lower;
}

}  // namespace

Verdict Good(std::string what) { return {Grade::kGood, std::move(what), ""}; }
Verdict Unknown(std::string what) { return {Grade::kUnknown, std::move(what), ""}; }
Verdict Warning(std::string what, std::string advice) {
  return {Grade::kWarning, std::move(what), std::move(advice)};
}
Verdict Fault(std::string what, std::string advice) {
  return {Grade::kFault, std::move(what), std::move(advice)};
}

std::string ReportText(const std::vector<Line>& lines) {
  std::string text;
  for (const auto& [check, verdict] : lines) {
    text += fmt::format("{:<8} {:<14} {}\n", NameOf(verdict.grade), check, verdict.what);
    if (!verdict.advice.empty()) text += fmt::format("{:<8} {:<14} -> {}\n", "", "", verdict.advice);
  }
  return text + fmt::format("{} checks: {} faults, {} warnings\n", lines.size(), Count(lines, Grade::kFault),
                            Count(lines, Grade::kWarning));
}

std::string ReportJson(const std::vector<Line>& lines) {
  nlohmann::ordered_json report = {{"faults", Count(lines, Grade::kFault)},
                                   {"warnings", Count(lines, Grade::kWarning)},
                                   {"checks", nlohmann::ordered_json::array()}};
  for (const auto& [check, verdict] : lines) {
    report["checks"].push_back({{"check", check},
                                {"grade", Lower(NameOf(verdict.grade))},
                                {"what", verdict.what},
                                {"advice", verdict.advice}});
  }
  // What others' libraries said may be no UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<std::string> Report(const std::vector<Line>& lines, std::string_view format) {
  if (format == "text") return ReportText(lines);
  if (format == "json") return ReportJson(lines);
  return Fail(ErrorCode::kInvalidArgument, "found format '{}'; allowed: text, json", format);
}

int ExitCodeOf(const std::vector<Line>& lines) {
  return Count(lines, Grade::kFault) > 0 ? kSomethingIsBroken : 0;
}

}  // namespace imgd::doctor
