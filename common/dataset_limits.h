#pragma once

#include <cstddef>
#include <string>

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

/// Cuts UTF-8 to at most so many bytes, between two characters.
inline void Shorten(std::string* text, size_t most) {
  if (text->size() <= most) return;
  while (most > 0 && (static_cast<unsigned char>((*text)[most]) & 0xc0) == 0x80) --most;
  text->resize(most);
}

}  // namespace imgd
