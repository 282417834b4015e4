#pragma once

#include <array>
#include <functional>
#include <optional>

#include "trainer/input/device_batch.h"
#include "trainer/loop/samples.h"
#include "trainer/loop/session.h"
#include "trainer/loop/step_clock.h"
#include "trainer/loop/step_graph.h"

namespace imgd::trainer {

/// Learns from batches: forward pass, loss, backward pass, update of weights and of their average.
class Learner {
 public:
  /// Both must outlive it.
  Learner(Session& session, StepClock& clock);

  /// What the ranks agreed on while the first forward pass ran.
  struct Agreement {
    int64_t images = 0;  ///< of all ranks in this step
    bool norm = false;   ///< the gradients' norm is wanted
  };

  /// One step of the optimiser with this rank's images of step `batch.step`, in as many parts as
  /// PartsOfStep() says. `agree` is called once, when the first forward pass was started. Where no rank
  /// has an image nothing is learnt. Throws what LibTorch throws, and CollectiveError.
  void Step(const DeviceBatch& batch, double learning_rate, const std::function<Agreement()>& agree);

  /// Loss, right answers, images, and steps that were left out (guard; on rank 0), of this rank since the
  /// last call, as doubles on the CPU; waits for the device. With guard.action skip the first three are
  /// without what gave a loss that is no finite number.
  at::Tensor TakeSums();

  /// The same since SetGuardSums(), without taking them.
  at::Tensor GuardSums() const { return OnHost(guard_sums_); }
  void SetGuardSums(const std::array<double, 4>& sums);

  /// Keeps some images of the next step with what the model answers, for TakeSamples().
  void KeepSamples() { keep_samples_ = true; }
  /// Those that were kept since the last call, if any; waits for the device.
  std::optional<report::SampleFigures> TakeSamples();

  /// Of the last step in which it was wanted, or gradients were clipped, before clipping and over all ranks;
  /// waits for the device. 0 before.
  double gradient_norm() const { return norm_.defined() ? norm_.item<double>() : 0; }

 private:
  static at::Tensor OnHost(const at::Tensor& sums);
  at::Tensor ForwardLoss(const DeviceBatch& part);
  at::Tensor LossOf(const DeviceBatch& part, const at::Tensor& logits) const;
  at::Tensor LossFor(const at::Tensor& labels, const at::Tensor& logits) const;
  at::Tensor CountTop1(const DeviceBatch& part, const at::Tensor& logits) const;
  void Count(const DeviceBatch& part, const at::Tensor& logits, const at::Tensor& loss);
  void Update(double learning_rate, bool norm);
  at::Tensor LeaveOut();
  void BeginGraph();

  void Backward(const at::Tensor& loss, bool is_last);

  Session& session_;
  StepClock& clock_;
  at::Tensor sums_;        ///< on the device: loss, correct, images, left out
  at::Tensor guard_sums_;  ///< the same, for the guard
  at::Tensor norm_;
  bool skip_;                        ///< guard.action is skip
  std::vector<at::Tensor> buffers_;  ///< the model's, with skip_
  std::vector<at::Tensor> kept_;     ///< they as they were before the step
  std::optional<StepGraph> graph_;   ///< with train.cuda_graph, where it can be had
  bool keep_samples_ = false;
  std::optional<KeptSamples> samples_;
};

}  // namespace imgd::trainer
