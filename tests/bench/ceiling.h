#pragma once

#include <cstdint>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

struct CeilingOptions {
  int crop_size = 224;
  bool exact = false;  ///< full size; else scaled as far as the crop allows
  int threads = 1;
  double seconds = 1;
};

struct CeilingResult {
  uint64_t images = 0;
  double seconds = 0;
  double pixel_mean = 0;  ///< of the crops' pixels, not resized
};

/// What the decoder alone allows: libjpeg-turbo decoding the crops that the loader takes in its first epoch,
/// from memory, with nothing done to the pixels. Only columns and rows of the crop are decoded, as far as the
/// library can pass over others. Errors: those of reading the set; kDataLoss for a file that it can't decode.
Result<CeilingResult> RunCeiling(const Dataset& set, const CeilingOptions& options);

}  // namespace imgd::data
