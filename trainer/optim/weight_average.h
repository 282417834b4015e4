#pragma once

#include "trainer/torch.h"

namespace imgd::trainer {

/// An exponential moving average of a model's weights and buffers (Polyak and Juditsky 1992): at each update
/// a = decay * a + (1 - decay) * w; counts of batches are those of the model. Begins as a copy.
class WeightAverage {
 public:
  /// `state` is the model's state dict, whose tensors it reads at each update and changes in Swap().
  WeightAverage(NamedTensors state, double decay);

  void Update();

  /// Exchanges the model's values with the averaged ones, in place; twice is as if never.
  void Swap();

  /// The averaged values by name, for checkpoints; copying into them restores them.
  const NamedTensors& values() const { return average_; }

 private:
  NamedTensors state_;
  NamedTensors average_;
  double decay_;
};

/// While it lives, a model has its averaged weights.
class WithAverage {
 public:
  /// `average` may be null, which changes nothing.
  explicit WithAverage(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->Swap();
  }
  ~WithAverage() {
    if (average_ != nullptr) average_->Swap();
  }
  WithAverage(const WithAverage&) = delete;
  WithAverage& operator=(const WithAverage&) = delete;

 private:
  WeightAverage* average_;
};

}  // namespace imgd::trainer
