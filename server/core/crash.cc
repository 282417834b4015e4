#include "server/core/crash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace imgd {
namespace {

constexpr size_t kMostPlaceBytes = 300;

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool IsFromOutside(int signal) {
  constexpr std::array<int, 4> kSignals = {1, 2, 9, 15};
  return std::find(kSignals.begin(), kSignals.end(), signal) != kSignals.end();
}

std::string Normalised(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size() && out.size() < kMostPlaceBytes;) {
    size_t end = i;
    while (end < line.size() && IsWord(line[end])) ++end;
    if (end == i) {
      out += line[i++];
      continue;
    }
    const std::string_view word = line.substr(i, end - i);
    out += std::any_of(word.begin(), word.end(), IsDigit) ? "#" : word;
    i = end;
  }
  out.resize(std::min(out.size(), kMostPlaceBytes));
  return out;
}

std::string CrashPlace(const RankExit& exit, int signal, const RankFailure* failure) {
  if (IsFromOutside(signal)) return "";
  // "step 57, forward pass (collective 83)": collectives are counted anew in each start.
  const std::string where = exit.where.substr(0, exit.where.find(" ("));
  std::string said = failure != nullptr ? failure->message : "";
  if (said.empty()) said = exit.last_error_line.empty() ? exit.last_line : exit.last_error_line;
  if (where.empty() && said.empty()) return "";
  const std::string how =
      signal != 0 ? fmt::format("signal {}", signal) : fmt::format("exit code {}", exit.exit_code);
  return fmt::format("{} | {} | {}", how, where, Normalised(said));
}

Crashes After(Crashes crashes, std::optional<std::string> place, const NodeId& node) {
  if (place) {
    crashes.times = !place->empty() && *place == crashes.place ? crashes.times + 1 : 1;
    crashes.place = std::move(*place);
  }
  if (node != NodeId()) crashes.nodes.insert(node);
  return crashes;
}

std::string OnNodes(const Crashes& crashes) {
  std::vector<std::string> names;
  for (const auto& node : crashes.nodes) names.push_back(node.name());
  if (names.empty()) return "";
  return fmt::format(", {}on {}", names.size() == 1 ? "each time " : "", fmt::join(names, ", "));
}

}  // namespace imgd
