#include "trainer/loop/step_graph.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/dist/gang.h"

namespace imgd::trainer {
namespace {

/// cuDNN chooses its algorithms in the first steps of a shape.
constexpr int kWarmUpSteps = 3;

at::Tensor CopyOf(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

void Fill(const at::Tensor& to, const at::Tensor& from) {
  if (to.defined()) to.copy_(from, /*non_blocking=*/true);
}

}  // namespace

std::string WhyNotRecorded(const JobSpec& spec, const Phase& phase, const at::Device& device,
                           int world_size) {
  if (!device.is_cuda()) return "this rank computes on the CPU";
  if (world_size > 1) return "there are several ranks, whose all-reduce is not recorded";
  if (spec.train.precision == "fp16") return "the loss scale of fp16 changes from step to step";
  if (const int parts = PartsOfStep(spec, phase, world_size); parts > 1) {
    return fmt::format("a step has {} parts (train.accumulate, elastic)", parts);
  }
  return "";
}

StepGraph::Shape StepGraph::ShapeOf(const DeviceBatch& batch) {
  Shape shape = batch.images.sizes().vec();
  shape.push_back(batch.own_weights.defined() ? 1 : 0);
  return shape;
}

bool StepGraph::Run(const DeviceBatch& batch, const Work& work) {
  if (failed_ || batch.count == 0) return false;
  const Shape shape = ShapeOf(batch);
  if (recorder_ && shape == recorded_) {
    Replay(batch);
    return true;
  }
  seen_ = shape == std::exchange(last_, shape) ? seen_ + 1 : 1;
  return seen_ > kWarmUpSteps && Record(batch, work);
}

bool StepGraph::Record(const DeviceBatch& batch, const Work& work) {
  recorder_.reset();
  gradients_.clear();
  batch_ = {.step = batch.step,
            .count = batch.count,
            .images = CopyOf(batch.images),
            .labels = CopyOf(batch.labels),
            .partner_labels = CopyOf(batch.partner_labels),
            .own_weights = CopyOf(batch.own_weights)};
  try {
    recorder_ = make_();
    recorder_->Record([&] { work(batch_); });
    for (const auto& parameter : parameters_) gradients_.push_back(parameter.grad());
    recorded_ = ShapeOf(batch_);
    Replay(batch);
  } catch (const std::exception& e) {
    failed_ = true;
    recorder_.reset();
    gradients_.clear();
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
    const std::string words = WordsOf(e);
    reporter_.Note(fmt::format("train.cuda_graph: steps are computed without a recording, as one failed: {}",
                               words.substr(0, words.find('\n'))));
    return false;
  }
  reporter_.Note(fmt::format("train.cuda_graph: steps of {} images are recorded", batch.count));
  return true;
}

void StepGraph::Replay(const DeviceBatch& batch) {
  Fill(batch_.images, batch.images);
  Fill(batch_.labels, batch.labels);
  Fill(batch_.partner_labels, batch.partner_labels);
  Fill(batch_.own_weights, batch.own_weights);
  recorder_->Replay();
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
}

}  // namespace imgd::trainer
