#pragma once

#include <memory>
#include <optional>

#include "trainer/torch.h"
//
#include "common/error.h"
#include "trainer/data/loader.h"

namespace imgd::trainer {

/// One rank's images of a step, ready to compute on.
struct DeviceBatch {
  uint64_t step = 0;
  int64_t count = 0;  ///< may be 0; then the tensors are undefined
  at::Tensor images;  ///< float [N, 3, H, W], channels_last, normalised
  at::Tensor labels;  ///< int64 [N]
};

/// Brings a loader's batches to the device and normalises them on a thread of its own, two ahead, while the
/// current one is computed. On a GPU: through pinned memory, on a stream of its own.
class Feed {
 public:
  Feed(const data::Dataset& dataset, data::LoaderOptions options, at::Device device);
  ~Feed();

  /// The next batch; nothing after the last. For one thread. On a GPU the calling thread's current stream
  /// waits for the batch. Errors: kInvalidArgument for too many bad images; kInternal for what LibTorch
  /// throws.
  Result<std::optional<DeviceBatch>> Next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::trainer
