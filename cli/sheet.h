#pragma once

#include <string>
#include <string_view>

#include "cli/app.h"

namespace imgd::cli {

/// Writes "  label       value" lines.
class Sheet {
 public:
  explicit Sheet(Context& context) : context_(context) {}

  /// Nothing for an empty value.
  void Field(std::string_view label, const std::string& value, Style style = Style::kPlain);
  void Heading(std::string_view title);

 private:
  Context& context_;
};

/// "2025-11-21 07:53:14 (3m12s ago)"; empty for 0. Microseconds since 1970 UTC.
std::string WhenText(int64_t time_us, int64_t now_us);

}  // namespace imgd::cli
