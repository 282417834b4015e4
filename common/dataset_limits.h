#pragma once

#include <cstddef>

namespace imgd {

/// How much is told of a data set (proto/imgd/v1/dataset_facts.proto): who tells keeps to it, and imgd leaves
/// out what is more. All of it together is well below a megabyte.
inline constexpr int kMostDatasetParts = 8;
inline constexpr int kMostDatasetClasses = 2000;  ///< of each part
inline constexpr int kMostDatasetSamples = 36;
inline constexpr size_t kMostSamplePictureBytes = 4096;
inline constexpr int kMostDatasetFindings = 100;
inline constexpr size_t kMostDatasetNameBytes = 80;   ///< of a class
inline constexpr size_t kMostDatasetTextBytes = 300;  ///< of an image's name, of what is wrong with it

}  // namespace imgd
