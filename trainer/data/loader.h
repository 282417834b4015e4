#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/augment.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image_decoder.h"
#include "trainer/data/order.h"

namespace imgd::data {

struct Shapes;

/// The images of one rank in one step, decoded, cropped, resized and augmented; not normalised.
struct Batch {
  uint64_t step = 0;                ///< step of the run (training) or index of the batch (validation), from 0
  int global_count = 0;             ///< images in this step over all ranks, as planned
  int width = 0;                    ///< of each image, pixels
  int height = 0;                   ///< likewise
  std::vector<uint8_t> pixels;      ///< [N, H, W, 3] RGB
  std::vector<int32_t> labels;      ///< [N]
  std::vector<uint32_t> samples;    ///< [N] index in the data set
  std::vector<uint32_t> positions;  ///< [N] in the step
  std::vector<Crop> erased;  ///< [N], empty boxes for none; empty without LoaderOptions::augment.erasing
  /// The part of the N images that is this rank's: those before and after belong to other ranks, and are here
  /// as partners for mixing (LoaderOptions::partners).
  Slice own;
  int count() const { return static_cast<int>(labels.size()); }
  int own_count() const { return static_cast<int>(own.last - own.first); }
};

/// What the loader makes of the images, and for whom.
struct LoaderOptions {
  bool training =
      true;             ///< RandomResizedCrop and flip in a seeded order; else Resize and CenterCrop in order
  int crop_size = 224;  ///< H = W of the result, pixels
  int resize = 256;     ///< validation: short side before the centre crop
  double min_scale = 0.08;  ///< training: least share of the area
  bool flip = true;         ///< training: mirror half of the images
  DecodeMode decode = DecodeMode::kFast;
  DecoderFactory decoder;  ///< called once by each decoding thread; unset: JpegDecoder
  AugmentOptions augment;  ///< training
  bool partners = false;   ///< training: also the images of other ranks that this rank's are mixed with
  /// Validation: order and crop of each batch, in the place of squares (shapes.h); made for this global_batch
  /// and crop_size.
  std::shared_ptr<const Shapes> shapes;
  uint64_t seed = 0;
  EpochMode epoch_mode = EpochMode::kExact;  ///< training
  int global_batch = 256;
  int segments = 1;  ///< K of docs/data-order.md
  int rank = 0;
  int world_size = 1;
  uint64_t first_epoch =
      0;  ///< training: the epoch that begins with first_step; steps before it there are none
  uint64_t first_step = 0;
  uint64_t start_step = 0;  ///< training: first step to produce
  uint64_t end_step =
      0;             ///< training: one past the last step; validation covers the whole set and ignores both
  int workers = 1;   ///< decoding threads
  int prefetch = 4;  ///< batches decoded ahead, at most
  uint64_t max_memory_bytes = 0;  ///< of batches in the making; fewer than `prefetch`, but 1; 0: no limit
  int max_bad_images = 100;
  /// Called from a worker thread, once for each image that could not be decoded; such an image is left out.
  std::function<void(const std::string& name, const std::string& error, uint64_t count)> on_bad_image;
};

/// Where a loader's time went since it was made. Times of the workers are summed over their threads.
struct LoaderFigures {
  double read_seconds = 0;          ///< getting the files
  double decode_seconds = 0;        ///< JPEG to pixels
  double augment_seconds = 0;       ///< resizing and augmentation
  double idle_seconds = 0;          ///< workers had nothing to do: as many batches as allowed lie ready
  double wait_seconds = 0;          ///< Next() had to wait
  uint64_t images = 0;              ///< made
  uint64_t bytes = 0;               ///< of their files
  uint64_t images_left_to_cpu = 0;  ///< of the images, by a decoder on another device
};

/// Decodes batches ahead on threads of its own. Batches come in order, whatever the threads do.
/// Next() is called by one thread. Destruction stops and joins the workers at once, as Stop() does.
class Loader {
 public:
  /// `dataset` must outlive the loader.
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();

  /// The next batch; nothing after the last. Blocks until it is ready.
  /// Errors: kDataLoss when more than max_bad_images (different ones) of this rank's could not be decoded,
  /// naming the last one; kInternal when an image can't be read because its server is away, or can't be
  /// decoded because the decoder itself is broken; kInvalidArgument for options that make no sense; those of
  /// LoaderOptions::decoder.
  Result<std::optional<Batch>> Next();

  /// From any thread: ends the work at once, also that of workers which wait for a server. Next() gives
  /// kCancelled from now on, also to the thread that waits in it.
  void Stop();

  /// Gives the memory of a batch that is done with back, for a later one; saves clearing fresh pages.
  /// Optional.
  void Recycle(Batch batch);

  /// From any thread.
  LoaderFigures figures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Steps in an epoch of `images` images: the last one may be smaller.
uint64_t StepsPerEpoch(uint64_t images, int global_batch);

}  // namespace imgd::data
