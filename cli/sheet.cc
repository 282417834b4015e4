#include "cli/sheet.h"

#include <fmt/format.h>

#include "cli/format.h"

namespace imgd::cli {

void Sheet::Field(std::string_view label, const std::string& value, Style style) {
  if (value.empty()) return;
  const auto& terminal = context_.terminal();
  const auto padded = fmt::format("  {:<13}", label);
  std::string text = Printable(value);
  context_.out() << Paint(padded, Style::kDim, terminal.color) << Paint(text, style, terminal.color) << '\n';
}

void Sheet::Heading(std::string_view title) {
  context_.out() << '\n' << Paint(title, Style::kBold, context_.terminal().color) << '\n';
}

std::string WhenText(int64_t time_us, int64_t now_us) {
  if (time_us == 0) return "";
  return fmt::format("{} ({} ago)", LocalTime(time_us), HumanAge(now_us, time_us));
}

}  // namespace imgd::cli
