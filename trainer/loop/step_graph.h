#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/torch.h"
//
#include "common/job_file.h"
#include "common/phases.h"
#include "trainer/cuda/cuda_parts.h"
#include "trainer/input/device_batch.h"
#include "trainer/report/reporter.h"

namespace imgd::trainer {

/// Why the steps of a phase are not recorded; empty where they are.
std::string WhyNotRecorded(const JobSpec& spec, const Phase& phase, const at::Device& device, int world_size);

/// Has the forward and backward pass of a step done from a recording, so that the GPU need not wait for the
/// CPU to launch one kernel after the other. Falls back by itself. Used by one thread.
class StepGraph {
 public:
  using Work = std::function<void(const DeviceBatch&)>;
  using Make = std::function<std::unique_ptr<GpuRecorder>()>;

  /// `parameters`: whose gradients the work leaves. `reporter` must outlive it.
  StepGraph(std::vector<at::Tensor> parameters, Make make, report::Reporter& reporter)
      : parameters_(std::move(parameters)), make_(std::move(make)), reporter_(reporter) {}

  /// Does `work` on the batch, which leaves the parameters their gradients, and is true; or does nothing: in
  /// the first steps with batches of this shape, as algorithms are still chosen, and once a recording has
  /// failed. What the work depends on, but for the batch, must stay the same as long as batches have one
  /// shape.
  bool Run(const DeviceBatch& batch, const Work& work);

 private:
  using Shape = std::vector<int64_t>;
  static Shape ShapeOf(const DeviceBatch& batch);
  bool Record(const DeviceBatch& batch, const Work& work);
  void Replay(const DeviceBatch& batch);

  std::vector<at::Tensor> parameters_;
  Make make_;
  report::Reporter& reporter_;
  bool failed_ = false;
  Shape last_;    ///< of the batches before
  int seen_ = 0;  ///< so many of them, one after the other
  std::unique_ptr<GpuRecorder> recorder_;
  Shape recorded_;                     ///< with recorder_, as below
  DeviceBatch batch_;                  ///< that the recording reads
  std::vector<at::Tensor> gradients_;  ///< that it writes, one for each parameter; undefined without one
};

}  // namespace imgd::trainer
