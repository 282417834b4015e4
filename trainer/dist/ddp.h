#pragma once

#include <memory>

#include "trainer/dist/gang.h"
#include "trainer/torch.h"
//
#include "common/job_file.h"

namespace imgd::trainer {

/// Averages gradients over the ranks while the backward pass runs, by c10d::Reducer, the engine of PyTorch's
/// DistributedDataParallel. With one rank it does nothing.
///
/// Each step, in this order: BeforeForward(), forward, BeforeBackward(loss), backward. The gradients are then
/// the mean over the ranks, so that a loss summed over a rank's images must be multiplied by
/// world_size / images of all ranks to give the mean over all images, however unevenly they are spread.
/// Parameters that need no gradient are left out. A step may have several passes before the one whose
/// backward pass BeforeBackward() precedes; their gradients add up and are averaged with the last ones'.
/// Gradients are views of the Reducer's buckets: clear them with `p.mutable_grad() = at::Tensor()`.
class GradientAverager {
 public:
  /// Compares the parameters' shapes over the ranks, then copies rank 0's parameters and buffers to all.
  /// `dist` says how gradients travel. Throws CollectiveError. `gang` must outlive it.
  GradientAverager(Gang& gang, const NamedTensors& parameters, const NamedTensors& buffers,
                   const JobSpec::Dist& dist);
  ~GradientAverager();

  void BeforeForward();
  void BeforeBackward(const at::Tensor& loss);

 private:
  class Engine;
  Gang& gang_;
  std::unique_ptr<Engine> engine_;  ///< null with one rank
};

}  // namespace imgd::trainer
