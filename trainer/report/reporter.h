#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "trainer/report/class_figures.h"
#include "trainer/report/picture.h"
#include "trainer/report/trial.h"

namespace imgd::report {

/// The rank has joined its gang and is about to train.
struct Started {
  int world_size = 1;
  std::string device;  ///< in words: "cpu", "cuda:0 NVIDIA H100"
  uint64_t start_step = 0;
  uint64_t total_steps = 0;
  uint64_t steps_per_epoch = 0;
  uint64_t train_images = 0;
  uint64_t val_images = 0;
  std::string resumed_from;  ///< folder of the checkpoint; empty for a fresh start
  std::string model;
  int total_epochs = 0;
  std::optional<Trial> trial = {};  ///< of rank 0; nothing with one rank
};

/// What this rank's loader did since the last report; as LoaderMetrics in trainer.proto.
struct LoaderFigures {
  double interval_seconds = 0;
  double wait_seconds = 0;
  int workers = 0;
  double read_seconds = 0;
  double decode_seconds = 0;
  double augment_seconds = 0;
  double idle_seconds = 0;
  uint64_t images = 0;
  uint64_t bytes = 0;
  uint64_t images_left_to_cpu = 0;
};

/// Where this rank's time went since the last report; as StepTimes in trainer.proto.
struct TimeFigures {
  uint32_t steps = 0;
  double input_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double communication_seconds = 0;
  double optimizer_seconds = 0;
  double all_reduce_seconds = 0;
  double all_reduce_hidden_ratio = 0;
  double h2d_seconds = 0;  ///< beside the parts above
};

/// How the ranks' steps differ, in seconds a step; as RankSpread in trainer.proto.
struct RankSpread {
  int ranks = 0;  ///< 0 with one rank: there is nothing to compare
  double own_least = 0;
  double own_mean = 0;
  double own_most = 0;
  double wait_least = 0;
  double wait_mean = 0;
  double wait_most = 0;
  int slowest_rank = 0;
  double slowest_input = 0;
};

/// Training figures since the last such report.
struct StepFigures {
  uint64_t step = 0;  ///< optimiser steps done over all generations
  uint64_t total_steps = 0;
  double epoch = 0;    ///< epochs done, as a fraction
  double loss = 0;     ///< mean over the interval and all ranks
  double penalty = 0;  ///< what weight decay adds to it, of the weights after this step; rank 0's only
  double top1 = 0;     ///< 0 to 1, over the interval and all ranks
  double learning_rate = 0;
  double gradient_norm = 0;  ///< of this step, over all ranks, before clipping
  double rank_images_per_second = 0;
  double images_per_second = 0;  ///< of the whole gang
  double input_wait_ratio = 0;   ///< share of the interval that this rank waited for input
  double eta_seconds = 0;
  LoaderFigures loader;
  TimeFigures times;
  RankSpread ranks;
};

/// Figures of one validation pass over all ranks.
struct EpochFigures {
  uint32_t epoch = 0;  ///< epochs done
  uint32_t total_epochs = 0;
  uint64_t step = 0;
  double val_loss = 0;
  double val_top1 = 0;  ///< 0 to 1
  double val_top5 = 0;  ///< 0 to 1
  uint64_t val_images = 0;
  double val_seconds = 0;
};

/// An image of a validation pass, for people.
struct ShownImage {
  WorstImage image;
  std::string class_name;
  std::string answer;
  bool worst = false;   ///< one of those with the highest loss
  std::string picture;  ///< a small JPEG file; may be empty
};

/// Some images of a validation pass, over all ranks.
struct ShownImages {
  uint64_t step = 0;
  double epoch = 0;
  std::vector<ShownImage> images;
};

/// A checkpoint is complete on disk.
struct CheckpointFigures {
  std::string path;
  uint64_t step = 0;
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  std::string manifest_sha256;  ///< lower-case hexadecimal
  double write_seconds = 0;     ///< that it took, beside the training
};

/// A profile of some steps is written.
struct Profiled {
  uint64_t step = 0;  ///< after which it ended
  int rank = 0;
  std::string trace;  ///< file
  std::string text;   ///< where the time went, for people
};

/// The rank trained to the end.
struct Finished {
  uint64_t step = 0;
  double val_top1 = 0;
  double val_top5 = 0;
};

/// The rank ends because of an error.
struct Failed {
  std::string message;
  bool bad_input = false;
  bool collective_broken = false;
};

/// An image that could not be decoded and was left out.
struct BadImage {
  std::string path;
  std::string error;
  uint64_t count = 0;  ///< so far in this rank
};

/// Where a rank says what it does. All functions may be called from any thread and return soon; what can't be
/// written is kept and tried again with the next report.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void On(const Started& started) = 0;
  virtual void On(const StepFigures& figures) = 0;
  virtual void On(const EpochFigures& figures) = 0;
  virtual void On(const Profiled&) {}
  /// Those two are for files of figures; others pass them over.
  virtual void On(const SampleFigures&) {}
  virtual void On(const ClassFigures&) {}
  /// For imgd alone.
  virtual void On(const ShownImages&) {}
  virtual void On(const CheckpointFigures& figures) = 0;
  virtual void On(const Finished& finished) = 0;
  virtual void On(const Failed& failed) = 0;
  virtual void On(const BadImage& image) = 0;
  /// Something that a person should know and no event carries.
  virtual void Note(const std::string& sentence) = 0;
  /// Waits, at most so long, until all that was reported is written.
  virtual void Drain(Duration) {}
};

/// Passes every report on to each of `reporters`, in order.
class Tee final : public Reporter {
 public:
  explicit Tee(std::vector<std::unique_ptr<Reporter>> reporters) : reporters_(std::move(reporters)) {}
  void On(const Started& x) override { ToAll(x); }
  void On(const StepFigures& x) override { ToAll(x); }
  void On(const EpochFigures& x) override { ToAll(x); }
  void On(const Profiled& x) override { ToAll(x); }
  void On(const SampleFigures& x) override { ToAll(x); }
  void On(const ClassFigures& x) override { ToAll(x); }
  void On(const ShownImages& x) override { ToAll(x); }
  void On(const CheckpointFigures& x) override { ToAll(x); }
  void On(const Finished& x) override { ToAll(x); }
  void On(const Failed& x) override { ToAll(x); }
  void On(const BadImage& x) override { ToAll(x); }
  void Drain(Duration most) override {
    for (auto& reporter : reporters_) reporter->Drain(most);
  }
  void Note(const std::string& sentence) override {
    for (auto& reporter : reporters_) reporter->Note(sentence);
  }

 private:
  template <typename T>
  void ToAll(const T& x) {
    for (auto& reporter : reporters_) reporter->On(x);
  }
  std::vector<std::unique_ptr<Reporter>> reporters_;
};

}  // namespace imgd::report
