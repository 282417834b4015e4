#include "trainer/data/sample.h"

#include <algorithm>

#include "trainer/data/crop.h"

namespace imgd::data {

Status SampleReader::ReadForTraining(std::span<const uint8_t> file, TrainingView view, int crop_size,
                                     uint8_t* out) {
  IMGD_ASSIGN(const JpegSize size, decoder_.Open(file, view.restarts));
  const Crop crop = RandomCrop(size.width, size.height, view.min_scale, view.random);
  const bool flip = view.flip && view.random.Coin();
  const Box box{static_cast<double>(crop.left), static_cast<double>(crop.top),
                static_cast<double>(crop.width), static_cast<double>(crop.height)};
  IMGD_ASSIGN(const DecodedPart part, decoder_.Decode(box, 0, crop_size, crop_size, view.decode));
  resizer_.Resize(part.pixels, part.box, crop_size, crop_size, flip, out);
  return {};
}

Status SampleReader::ReadForValidation(std::span<const uint8_t> file, int resize, int crop_size, uint8_t* out,
                                       DecodeMode mode, RestartIndex restarts) {
  IMGD_ASSIGN(const JpegSize size, decoder_.Open(file, restarts));
  const CenterCropPlan plan = PlanCenterCrop(size.width, size.height, resize, crop_size);
  // The crop comes after the resizing, so the filter sees what is beside the crop.
  const double across = static_cast<double>(size.width) / plan.resized_width;
  const double down = static_cast<double>(size.height) / plan.resized_height;
  const Box box{plan.crop.left * across, plan.crop.top * down, plan.crop.width * across,
                plan.crop.height * down};
  const double reach = std::max({across, down, 1.0}) + 1;
  IMGD_ASSIGN(const DecodedPart part, decoder_.Decode(box, reach, crop_size, crop_size, mode));
  resizer_.Resize(part.pixels, part.box, crop_size, crop_size, false, out);
  return {};
}

}  // namespace imgd::data
