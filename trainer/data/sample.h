#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/random.h"
#include "trainer/data/resize.h"

namespace imgd::data {

/// Makes one square RGB picture of crop_size pixels a side from one image file.
/// Keeps its memory between files; each decoding thread has one.
class SampleReader {
 public:
  /// A file longer than this is refused, unread.
  static constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

  struct TrainingView {
    double min_scale = 0.08;
    bool flip = true;
    Random random;
  };

  /// RandomResizedCrop and flip, by `view.random` alone. `out` gets crop_size * crop_size * 3 bytes.
  /// Errors: those of the file system and of JpegDecoder.
  Status ReadForTraining(const std::filesystem::path& path, TrainingView view, int crop_size, uint8_t* out);

  /// Resize of the short side to `resize`, then CenterCrop; crop_size at most `resize`.
  Status ReadForValidation(const std::filesystem::path& path, int resize, int crop_size, uint8_t* out);

 private:
  Result<JpegSize> Open(const std::filesystem::path& path);
  Status ReadWhole(const std::filesystem::path& path);

  std::vector<uint8_t> file_;
  size_t file_size_ = 0;
  JpegDecoder decoder_;
  Resizer resizer_;
};

}  // namespace imgd::data
