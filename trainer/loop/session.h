#pragma once

#include <memory>
#include <optional>
#include <set>

#include "trainer/torch.h"
//
#include "common/job_file.h"
#include "common/phases.h"
#include "common/schedule.h"
#include "trainer/commands.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/data/mix.h"
#include "trainer/data/shapes.h"
#include "trainer/dist/ddp.h"
#include "trainer/dist/gang.h"
#include "trainer/environment.h"
#include "trainer/input/nvjpeg_decoder.h"
#include "trainer/loop/checkpoint_saver.h"
#include "trainer/loop/run_state.h"
#include "trainer/model/layers.h"
#include "trainer/model/model.h"
#include "trainer/optim/loss_scale.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/weight_average.h"
#include "trainer/pulse.h"
#include "trainer/report/reporter.h"
#include "trainer/whereabouts.h"

namespace imgd::trainer {

/// Everything that a run is made of, set up and the same on all ranks. Used by the training thread only.
struct Session {
  const JobSpec& spec;
  const Environment& env;
  report::Reporter& reporter;
  Commands& commands;
  Whereabouts& whereabouts;

  at::Device device{at::kCPU};
  at::ScalarType compute_type = at::kFloat;  ///< of the forward and backward pass
  std::unique_ptr<data::Dataset> train;
  std::vector<std::unique_ptr<data::Dataset>>
      resized;                         ///< of the job file's phases that have a set of their own, else null
  std::unique_ptr<data::Dataset> val;  ///< null without validation
  std::shared_ptr<const data::Shapes> val_shapes;  ///< for rectangular validation, once it is needed
  std::unique_ptr<Pulse> pulse;
  std::unique_ptr<Gang> gang;
  std::optional<report::Trial> trial;  ///< of rank 0; nothing with one rank
  std::shared_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;  ///< null without ema
  std::unique_ptr<GradientAverager> averager;
  std::shared_ptr<SumOverRanks> norm_sum;  ///< null without train.sync_batch_norm, or with one rank
  LossScale loss_scale;
  Schedule schedule;
  std::shared_ptr<CheckpointStore> checkpoints;  ///< rank 0's, else null
  std::unique_ptr<CheckpointSaver> saver;        ///< likewise

  Phases phases;
  uint64_t total_steps = 0;        ///< where this run ends: max_steps or all epochs
  RunState state;                  ///< as of the last finished step
  std::string resumed_from;        ///< folder; empty for a fresh start
  int workers = 1;                 ///< decoding threads
  std::shared_ptr<Nvjpeg> nvjpeg;  ///< that training images are decoded by; null for the CPU
  /// That were reported; each touched by one loader at a time, one call after the other.
  std::set<std::string> bad_train_images;
  std::set<std::string> bad_val_images;

  data::MixOptions mix() const { return {spec.augment.mixup, spec.augment.cutmix}; }
  bool is_rank0() const { return env.rank == 0; }
  double LearningRate(uint64_t step) const;
  const data::Dataset& TrainSet(const Phase& phase) const;
  /// For what is left of a phase.
  data::LoaderOptions TrainOptions(const Phase& phase);
  data::LoaderOptions ValOptions();
  void OnBadImage(std::set<std::string>& named, const std::string& name, const std::string& error);
};

/// Opens the data, meets the other ranks, makes the model and takes up the newest checkpoint.
/// Errors: as RunTraining().
Status SetUp(Session& session);

/// The same for a session that only validates: data.val, and the weights of model.init_from.
Status SetUpEvaluation(Session& session);

/// Begins with the loss scale of `session.state`, in fp16.
void BeginLossScale(Session& session);

}  // namespace imgd::trainer
