#pragma once

#include <cstdint>

#include "trainer/torch.h"
//
#include "trainer/data/loader.h"
#include "trainer/data/mix.h"
#include "trainer/input/device_batch.h"

namespace imgd::trainer {

/// Erases the boxes of `batch` (to the mean colour), mixes its images with their partners (data/mix.h; after
/// erasing, as torchvision's reference does), and leaves this rank's own in `out`. `out` has all of the
/// batch's images, normalised, and labels, on its device. An image whose partner could not be decoded stays
/// as it is. What an image becomes depends on (seed, step, position) and the pair, never on the rank.
void EraseAndMix(const data::Batch& batch, const data::MixOptions& mix, uint64_t seed, DeviceBatch& out);

}  // namespace imgd::trainer
