#pragma once

#include <string>
#include <string_view>

namespace imgd::cli {

/// A line that a program wrote, for a terminal: it colours text at most (SGR), and that only with `colours`,
/// ending with the line. Other escape sequences (cursor moves, titles, links) are left out, other controls
/// but tabs are spaces.
std::string LogText(std::string_view line, bool colours);

}  // namespace imgd::cli
