#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/error.h"

namespace imgd::data {

struct SynthOptions {
  int classes = 10;       ///< 1 to 1000
  int per_class = 200;    ///< training images of each class; 1 to 1,000,000
  int val_per_class = 0;  ///< validation images of each class; 0 for no val folder
  int width = 128;        ///< pixels, 16 to 4096
  int height = 128;
  uint64_t seed = 0;
  int quality = 90;  ///< of the JPEG files, 1 to 100
  int jobs = 1;      ///< threads that draw
};

/// Told from any thread, one call at a time, how many of the images are written. False: no more is to be
/// drawn.
using SynthProgress = std::function<bool(uint64_t done, uint64_t total)>;

/// Draws a data set of "photographs of shapes" as an ImageFolder: OUT/train/<class>/<number>.jpg, the same
/// under OUT/val, and OUT/dataset.json with the options. Same options, same bytes, whatever `jobs` is; a
/// picture depends on seed, class and number only, not on how many there are.
/// The folder appears when it is complete: it is written beside OUT and renamed.
/// Errors: kInvalidArgument for an option out of range; kAlreadyExists when OUT is there and not empty;
/// kCancelled when `progress` says so; those of the file system. After an error nothing of it is left.
Status WriteSynthDataset(const SynthOptions& options, const std::filesystem::path& out,
                         const SynthProgress& progress = {});

}  // namespace imgd::data
