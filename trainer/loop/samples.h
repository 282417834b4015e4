#pragma once

#include <string>
#include <vector>

#include "common/job_file.h"
#include "trainer/input/device_batch.h"
#include "trainer/report/picture.h"

namespace imgd::trainer {

/// Some images of a batch with what the model answered, on the device.
struct KeptSamples {
  DeviceBatch batch;      ///< as many as are kept
  at::Tensor answers;     ///< int64 [N]
  at::Tensor confidence;  ///< float [N], 0 to 1
};

/// The first eight of the batch, or fewer; `logits` is float [N, classes]. Does not wait for the device.
KeptSamples KeepSomeOf(const DeviceBatch& batch, const at::Tensor& logits);

/// The same as pixels and words; waits for the device.
report::SampleFigures FiguresOf(const KeptSamples& kept, const JobSpec::Normalisation& normalisation,
                                const std::vector<std::string>& classes);

}  // namespace imgd::trainer
