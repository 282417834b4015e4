#pragma once

#include <string>
#include <string_view>

namespace imgd {

/// Whether a program of one version works with what a program of another says.
enum class ReleaseFit { kFits, kTooOld, kTooNew };

/// What `theirs` is to `ours`, each as "MAJOR.MINOR.PATCH", whatever follows that. Those of the same minor
/// version fit, and of the one before; that of the first of a major version is the whole major version
/// before. A version without such numbers, as tests have, fits.
ReleaseFit FitOf(std::string_view ours, std::string_view theirs);

/// What fits, in words: "0.4 and 0.3", "2.0 and of version 1". Empty for a version without numbers.
std::string ReleasesThatFit(std::string_view ours);

/// A program and its version.
struct VersionOf {
  std::string_view program;
  std::string_view version;
};
/// "imgtrain 0.2.9 is too old for imgd 0.4.1, which works with trainers of 0.4 and 0.3", where `kind` is
/// "trainers"; empty where it fits.
std::string WhyNotFit(VersionOf ours, VersionOf theirs, std::string_view kind);

}  // namespace imgd
