#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

/// The images of one rank in one step, decoded, cropped and resized; not normalised.
struct Batch {
  uint64_t step = 0;              ///< step of the run (training) or index of the batch (validation), from 0
  int global_count = 0;           ///< images in this step over all ranks, as planned
  std::vector<uint8_t> pixels;    ///< [N, H, W, 3] RGB
  std::vector<int32_t> labels;    ///< [N]
  std::vector<uint32_t> samples;  ///< [N] index in the data set
  int count() const { return static_cast<int>(labels.size()); }
};

/// What the loader makes of the images, and for whom.
struct LoaderOptions {
  bool training =
      true;             ///< RandomResizedCrop and flip in a seeded order; else Resize and CenterCrop in order
  int crop_size = 224;  ///< H = W of the result, pixels
  int resize = 256;     ///< validation: short side before the centre crop
  double min_scale = 0.08;  ///< training: least share of the area
  bool flip = true;         ///< training: mirror half of the images
  uint64_t seed = 0;
  int global_batch = 256;
  int segments = 1;  ///< K of docs/data-order.md
  int rank = 0;
  int world_size = 1;
  uint64_t start_step = 0;  ///< training: first step to produce
  uint64_t end_step =
      0;             ///< training: one past the last step; validation covers the whole set and ignores both
  int workers = 1;   ///< decoding threads
  int prefetch = 4;  ///< batches decoded ahead, at most
  int max_bad_images = 100;
  /// Called from a worker thread, once for each image that could not be decoded; such an image is left out.
  std::function<void(const std::string& name, const std::string& error, uint64_t count)> on_bad_image;
};

/// Decodes batches ahead on threads of its own. Batches come in order, whatever the threads do.
/// Next() is called by one thread. Destruction stops and joins the workers at once.
class Loader {
 public:
  /// `dataset` must outlive the loader.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();

  /// The next batch; nothing after the last. Blocks until it is ready.
  /// Errors: kDataLoss when more than max_bad_images (different ones) of this rank's could not be decoded,
  /// naming the last one; kInvalidArgument for options that make no sense.
  Result<std::optional<Batch>> Next();

  /// Gives the memory of a batch that is done with back, for a later one; saves clearing fresh pages.
  /// Optional.
  void Recycle(Batch batch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Steps in an epoch of `images` images: the last one may be smaller.
uint64_t StepsPerEpoch(uint64_t images, int global_batch);

}  // namespace imgd::data
