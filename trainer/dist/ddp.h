#pragma once

#include <functional>
#include <memory>

#include "trainer/dist/gang.h"
#include "trainer/torch.h"
//
#include "common/job_file.h"

namespace imgd::trainer {

/// The size of the buckets in which gradients travel, MiB: dist.bucket_mb, or where the job names none 4 by
/// Gloo, for tensors on the CPU, and 25 by NCCL, as PyTorch's.
int BucketMebibytes(const JobSpec::Dist& dist, const at::Device& device);

/// Averages gradients over the ranks while the backward pass runs, by c10d::Reducer, the engine of PyTorch's
/// DistributedDataParallel. With one rank it does nothing.
///
/// Each step, in this order: BeforeForward(), forward, BeforeBackward(loss, ...), backward. The gradients are
/// then the mean over the ranks, so that a loss summed over a rank's images must be multiplied by world_size
/// / images of all ranks to give the mean over all images, however unevenly they are spread. Parameters that
/// need no gradient are left out. A step may have several passes before the one whose backward pass
/// BeforeBackward() precedes; their gradients add up and are averaged with the last ones'. Gradients are
/// views of the Reducer's buckets: clear them with `p.mutable_grad() = at::Tensor()`.
class GradientAverager {
 public:
  /// Compares the parameters' shapes over the ranks, then copies rank 0's parameters and buffers to all.
  /// `dist` says how gradients travel. Throws CollectiveError. `gang` must outlive it.
  GradientAverager(Gang& gang, const NamedTensors& parameters, const NamedTensors& buffers,
                   const JobSpec::Dist& dist);
  ~GradientAverager();

  void BeforeForward();
  /// With several ranks `on_own_done` is called in the backward pass, when this rank's own gradients are
  /// there (on a GPU: are queued, on the calling thread's stream) and what is left is waiting for the others.
  void BeforeBackward(const at::Tensor& loss, std::function<void()> on_own_done);

  /// How long an all-reduce of gradients took.
  struct AllReduceTimes {
    double seconds = 0;         ///< from the first bucket that was ready to the last that was reduced
    double hidden_seconds = 0;  ///< of them, while the backward pass still ran
  };
  /// Of the last backward pass; waits for the device. Zeros with one rank.
  AllReduceTimes LastAllReduce() const;

 private:
  class Engine;
  Gang& gang_;
  std::unique_ptr<Engine> engine_;  ///< null with one rank
};

}  // namespace imgd::trainer
