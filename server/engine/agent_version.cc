#include "server/engine/agent_version.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace imgd {
namespace {

/// Major and minor.
using Release = std::pair<uint32_t, uint32_t>;

std::optional<Release> ReleaseOf(std::string_view version) {
  Release release;
  const char* const end = version.data() + version.size();
  const auto [dot, bad_major] = std::from_chars(version.data(), end, release.first);
  if (bad_major != std::errc() || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, release.second).ec != std::errc()) return std::nullopt;
  return release;
}

bool IsOneBefore(Release imgd, Release agent) {
  if (imgd.second == 0) return agent.first + 1 == imgd.first;
  return agent.first == imgd.first && agent.second + 1 == imgd.second;
}

}  // namespace

Status CheckAgentVersion(std::string_view imgd, std::string_view agent) {
  const auto ours = ReleaseOf(imgd);
  const auto theirs = ReleaseOf(agent);
  if (!ours || !theirs || theirs == ours || IsOneBefore(*ours, *theirs)) return {};
  const std::string before = ours->second > 0  ? fmt::format(" and {}.{}", ours->first, ours->second - 1)
                             : ours->first > 0 ? fmt::format(" and of version {}", ours->first - 1)
                                               : "";
  const bool newer = *theirs > *ours;
  return tl::unexpected(
      Error{.code = ErrorCode::kFailedPrecondition,
            .message = fmt::format("imgagent {} is too {} for imgd {}, which works with agents of {}.{}{}",
                                   agent, newer ? "new" : "old", imgd, ours->first, ours->second, before),
            .hint = newer ? "upgrade imgd first, then the nodes"
                          : "install imgd's version of imgagent on the node"});
}

}  // namespace imgd
