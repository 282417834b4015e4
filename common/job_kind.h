#pragma once

#include <cstdint>
#include <string_view>

namespace imgd {

/// What the ranks of a job are. The numbers are those of proto/imgd/v1/common.proto and of the database.
enum class JobKind : uint8_t {
  kTraining = 1,    ///< imgtrain, which reports what it does
  kCommand = 2,     ///< any program; nothing is known of it but its processes and its log
  kConversion = 3,  ///< imgcli dataset convert
};

/// "training", "command" or "conversion".
constexpr std::string_view NameOf(JobKind kind) {
  if (kind == JobKind::kCommand) return "command";
  return kind == JobKind::kConversion ? "conversion" : "training";
}

}  // namespace imgd
