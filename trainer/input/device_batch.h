#pragma once

#include <cstdint>
#include <vector>

#include "trainer/torch.h"

namespace imgd::trainer {

/// One rank's images of a step, ready to compute on.
struct DeviceBatch {
  uint64_t step = 0;
  int64_t count = 0;  ///< may be 0; then the tensors are undefined
  at::Tensor images;  ///< float [N, 3, H, W], channels_last, normalised
  at::Tensor labels;  ///< int64 [N]
  /// With mixing: int64 [N], the labels of the partners, and float [N], the weights of the own ones, from 0
  /// to 1. Else undefined.
  at::Tensor partner_labels;
  at::Tensor own_weights;
  std::vector<uint32_t> samples;  ///< [N] indexes in the data set
};

}  // namespace imgd::trainer
