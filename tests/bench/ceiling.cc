#include "tests/bench/ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "trainer/data/crop.h"
#include "trainer/data/jpeg_errors.h"

namespace imgd::data {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

class Decoder {
 public:
  explicit Decoder(const CeilingOptions& options) : options_(options) {
    cinfo_.err = errors_.Install();
    jpeg_create_decompress(&cinfo_);
  }
  ~Decoder() { jpeg_destroy_decompress(&cinfo_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool Decode(const Bytes& file, Random random) {
    return errors_.Guard([&] {
      jpeg_mem_src(&cinfo_, file.data(), file.size());
      jpeg_read_header(&cinfo_, TRUE);
      const Crop crop = RandomCrop(static_cast<int>(cinfo_.image_width),
                                   static_cast<int>(cinfo_.image_height), 0.08, random);
      DecodeCrop(crop);
    });
  }

  /// For a sum that is not timed: the mean of what was decoded last.
  double LastMean() const {
    double sum = 0;
    for (size_t i = 0; i < used_; i += 4) sum += pixels_[i] + pixels_[i + 1] + pixels_[i + 2];
    return used_ == 0 ? 0 : sum / static_cast<double>(used_ / 4 * 3);
  }

 private:
  void DecodeCrop(const Crop& crop) {
    unsigned scale = 8;
    const auto least = static_cast<unsigned>(std::min(crop.width, crop.height));
    const auto wanted = static_cast<unsigned>(options_.crop_size) * 8;
    while (!options_.exact && scale > 1 && least * scale / 2 >= wanted) scale /= 2;
    cinfo_.scale_num = scale;
    cinfo_.scale_denom = 8;
    cinfo_.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&cinfo_);
    const auto scaled = [&](int x) { return static_cast<JDIMENSION>(x) * scale / 8; };
    JDIMENSION left = scaled(crop.left);
    JDIMENSION width = std::max(scaled(crop.width), 1U);
    jpeg_crop_scanline(&cinfo_, &left, &width);
    if (crop.top > 0) jpeg_skip_scanlines(&cinfo_, scaled(crop.top));
    const JDIMENSION rows = std::max(scaled(crop.height), 1U);
    used_ = size_t{cinfo_.output_width} * 4 * rows;
    if (pixels_.size() < used_) pixels_.resize(used_);
    for (JDIMENSION y = 0; y < rows; ++y) {
      uint8_t* row = pixels_.data() + size_t{cinfo_.output_width} * 4 * y;
      jpeg_read_scanlines(&cinfo_, &row, 1);
    }
    jpeg_abort_decompress(&cinfo_);
  }

  CeilingOptions options_;
  JpegErrors errors_{/*strict=*/false};
  jpeg_decompress_struct cinfo_{};
  Bytes pixels_;
  size_t used_ = 0;
};

}  // namespace

Result<CeilingResult> RunCeiling(const Dataset& set, const CeilingOptions& options) {
  std::vector<Bytes> files;
  FileBuffer buffer;
  for (size_t i = 0; i < set.size(); ++i) {
    IMGD_TRY(set.Read(i, buffer));
    files.emplace_back(buffer.bytes().begin(), buffer.bytes().end());
  }
  std::atomic<uint64_t> next = 0;
  std::atomic<uint64_t> bad = 0;
  const auto one = [&](Decoder& decoder, uint64_t i) {
    const auto sample = static_cast<uint32_t>(i % files.size());
    if (!decoder.Decode(files[sample],
                        Random(1, static_cast<uint32_t>(i / files.size()), sample, Purpose::kCrop)))
      ++bad;
  };
  CeilingResult result;
  const size_t summed = std::min<size_t>(files.size(), 512);
  for (size_t i = 0; i < summed; ++i) {
    Decoder decoder(options);
    one(decoder, i);
    result.pixel_mean += decoder.LastMean() / static_cast<double>(summed);
  }
  const auto start = Clock::now();
  const auto until = start + std::chrono::duration<double>(options.seconds);
  {
    std::vector<std::jthread> pool;
    for (int t = 0; t < options.threads; ++t) {
      pool.emplace_back([&] {
        const auto decoder = std::make_unique<Decoder>(options);
        while (Clock::now() < until) one(*decoder, next++);
      });
    }
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.images = next;
  if (bad > 0) return Fail(ErrorCode::kDataLoss, "{} images could not be decoded", bad.load());
  return result;
}

}  // namespace imgd::data
