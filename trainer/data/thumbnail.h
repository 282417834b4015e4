#pragma once

#include <cstddef>
#include <string>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/resize.h"

namespace imgd::data {

/// Makes small JPEG files of a set's images, the whole of each, for people. Keeps its memory between images;
/// one thread at a time.
class Thumbnails {
 public:
  static constexpr int kMostSide = 96;
  static constexpr size_t kMostBytes = 4096;

  /// No side longer than kMostSide, none enlarged; at most kMostBytes.
  /// Errors: those of Dataset::Read and JpegDecoder; kResourceExhausted where it can't be made so small.
  Result<std::string> Make(const Dataset& set, size_t image);

 private:
  FileBuffer file_;
  JpegDecoder decoder_;
  Resizer resizer_;
};

}  // namespace imgd::data
