#pragma once

#include <memory>
#include <optional>

#include "trainer/torch.h"
//
#include "common/error.h"
#include "common/job_file.h"
#include "trainer/data/loader.h"
#include "trainer/data/mix.h"
#include "trainer/input/device_batch.h"

namespace imgd::trainer {

/// Brings a loader's batches to the device as bytes, and there normalises, erases and mixes them, on a thread
/// of its own, two ahead, while the current one is computed. On a GPU: through pinned memory, on a stream of
/// its own.
class Feed {
 public:
  Feed(const data::Dataset& dataset, data::LoaderOptions options, at::Device device,
       const JobSpec::Normalisation& normalisation, const data::MixOptions& mix = {});
  ~Feed();

  /// The next batch; nothing after the last. For one thread. On a GPU the calling thread's current stream
  /// waits for the batch. Errors: kInvalidArgument for too many bad images; kInternal for what LibTorch
  /// throws.
  Result<std::optional<DeviceBatch>> Next();

  /// Of the loader. From any thread.
  data::LoaderFigures figures() const;

  /// How long copying to the GPU took, of batches that Next() gave and whose copies are done; seconds. For
  /// the thread of Next().
  double h2d_seconds();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::trainer
