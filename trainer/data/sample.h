#pragma once

#include <cstdint>
#include <span>

#include "common/error.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/random.h"
#include "trainer/data/resize.h"

namespace imgd::data {

/// Makes one square RGB picture of crop_size pixels a side from the bytes of one image file.
/// Keeps its memory between files; each decoding thread has one.
class SampleReader {
 public:
  struct TrainingView {
    double min_scale = 0.08;
    bool flip = true;
    Random random;
    DecodeMode decode = DecodeMode::kFast;
    RestartIndex restarts;  ///< of the file, as for JpegDecoder::Open
  };

  /// RandomResizedCrop and flip, by `view.random` alone. `out` gets crop_size * crop_size * 3 bytes.
  /// Errors: those of JpegDecoder.
  Status ReadForTraining(std::span<const uint8_t> file, TrainingView view, int crop_size, uint8_t* out);

  /// Resize of the short side to `resize`, then CenterCrop; crop_size at most `resize`.
  Status ReadForValidation(std::span<const uint8_t> file, int resize, int crop_size, uint8_t* out,
                           DecodeMode mode = DecodeMode::kExact, RestartIndex restarts = {});

 private:
  JpegDecoder decoder_;
  Resizer resizer_;
};

}  // namespace imgd::data
