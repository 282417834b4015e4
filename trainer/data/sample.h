#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/error.h"
#include "trainer/data/decode_mode.h"
#include "trainer/data/image_decoder.h"
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
  struct ValidationView {
    int resize = 256;  ///< short side before the centre crop
    int width = 224;   ///< of the crop; neither side may be longer than the resized image's
    int height = 224;
    DecodeMode decode = DecodeMode::kExact;
    RestartIndex restarts;
  };
  /// Where the time went, since this was made; nanoseconds.
  struct Times {
    uint64_t decode = 0;
    uint64_t resize = 0;
  };

  /// By `decoder`; null: a JpegDecoder.
  explicit SampleReader(std::unique_ptr<ImageDecoder> decoder = nullptr);

  /// RandomResizedCrop and flip, by `view.random` alone. `out` gets crop_size * crop_size * 3 bytes.
  /// Errors: those of ImageDecoder.
  Status ReadForTraining(std::span<const uint8_t> file, TrainingView view, int crop_size, uint8_t* out);

  /// Resize of the short side, then CenterCrop. `out` gets width * height * 3 bytes.
  Status ReadForValidation(std::span<const uint8_t> file, const ValidationView& view, uint8_t* out);

  const Times& times() const { return times_; }
  uint64_t images_left_to_cpu() const { return decoder_->images_left_to_cpu(); }

 private:
  Times times_;
  std::unique_ptr<ImageDecoder> decoder_;
  Resizer resizer_;
};

}  // namespace imgd::data
