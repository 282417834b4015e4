#include "common/release.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
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

bool IsOneBefore(Release ours, Release theirs) {
  if (ours.second == 0) return theirs.first + 1 == ours.first;
  return theirs.first == ours.first && theirs.second + 1 == ours.second;
}

}  // namespace

ReleaseFit FitOf(std::string_view ours, std::string_view theirs) {
  const auto our = ReleaseOf(ours);
  const auto their = ReleaseOf(theirs);
  if (!our || !their || their == our || IsOneBefore(*our, *their)) return ReleaseFit::kFits;
  return *their > *our ? ReleaseFit::kTooNew : ReleaseFit::kTooOld;
}

std::string ReleasesThatFit(std::string_view ours) {
  const auto our = ReleaseOf(ours);
  if (!our) return "";
  std::string text = fmt::format("{}.{}", our->first, our->second);
  if (our->second > 0) return text + fmt::format(" and {}.{}", our->first, our->second - 1);
  return our->first > 0 ? text + fmt::format(" and of version {}", our->first - 1) : text;
}

std::string WhyNotFit(VersionOf ours, VersionOf theirs, std::string_view kind) {
  const ReleaseFit fit = FitOf(ours.version, theirs.version);
  if (fit == ReleaseFit::kFits) return "";
  return fmt::format("{} {} is too {} for {} {}, which works with {} of {}", theirs.program, theirs.version,
                     fit == ReleaseFit::kTooNew ? "new" : "old", ours.program, ours.version, kind,
                     ReleasesThatFit(ours.version));
}

}  // namespace imgd
