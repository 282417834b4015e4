#include "trainer/data/sample.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "trainer/data/crop.h"
#include "trainer/data/jpeg.h"

namespace imgd::data {
namespace {

/// Adds the time until its end to a sum.
class Timer {
 public:
  explicit Timer(uint64_t& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Timer() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    sum_ += static_cast<uint64_t>(std::chrono::nanoseconds(spent).count());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  uint64_t& sum_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace

SampleReader::SampleReader(std::unique_ptr<ImageDecoder> decoder)
    : decoder_(decoder ? std::move(decoder) : std::make_unique<JpegDecoder>()) {}

Status SampleReader::ReadForTraining(std::span<const uint8_t> file, TrainingView view, int crop_size,
                                     uint8_t* out) {
  auto decoding = std::make_optional<Timer>(times_.decode);
  IMGD_ASSIGN(const JpegSize size, decoder_->Open(file, view.restarts));
  const Crop crop = RandomCrop(size.width, size.height, view.min_scale, view.random);
  const bool flip = view.flip && view.random.Coin();
  const Box box{static_cast<double>(crop.left), static_cast<double>(crop.top),
                static_cast<double>(crop.width), static_cast<double>(crop.height)};
  IMGD_ASSIGN(const DecodedPart part, decoder_->Decode(box, 0, crop_size, crop_size, view.decode));
  decoding.reset();
  const Timer resizing(times_.resize);
  resizer_.Resize(part.pixels, part.box, crop_size, crop_size, flip, out);
  return {};
}

Status SampleReader::ReadForValidation(std::span<const uint8_t> file, const ValidationView& view,
                                       uint8_t* out) {
  auto decoding = std::make_optional<Timer>(times_.decode);
  IMGD_ASSIGN(const JpegSize size, decoder_->Open(file, view.restarts));
  const CenterCropPlan plan = PlanCenterCrop(size.width, size.height, view.resize, view.width, view.height);
  // The crop comes after the resizing, so the filter sees what is beside the crop.
  const double across = static_cast<double>(size.width) / plan.resized_width;
  const double down = static_cast<double>(size.height) / plan.resized_height;
  const Box box{plan.crop.left * across, plan.crop.top * down, plan.crop.width * across,
                plan.crop.height * down};
  const double reach = std::max({across, down, 1.0}) + 1;
  IMGD_ASSIGN(const DecodedPart part, decoder_->Decode(box, reach, view.width, view.height, view.decode));
  decoding.reset();
  const Timer resizing(times_.resize);
  resizer_.Resize(part.pixels, part.box, view.width, view.height, false, out);
  return {};
}

}  // namespace imgd::data
