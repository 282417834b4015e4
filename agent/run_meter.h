#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/follow.h"
#include "agent/run_dir.h"
#include "imgd/v1/trainer.pb.h"

namespace imgd {

/// What a rank has reported of its training. The totals are sums over all its reports in this run, so they
/// only grow, whatever the trainer and the agent go through meanwhile.
struct RankFigures {
  // Totals.
  double images = 0;         ///< trained on
  double loader_images = 0;  ///< made by the loader, those that lie ready included
  double loader_bytes = 0;   ///< of their files
  double read_seconds = 0;   ///< of the loader's threads together, as the next three
  double decode_seconds = 0;
  double augment_seconds = 0;
  double idle_seconds = 0;
  double wait_seconds = 0;  ///< that training stood still for input
  // Of the steps' time, as StepTimes in trainer.proto.
  double step_input_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double communication_seconds = 0;
  double optimizer_seconds = 0;
  double h2d_seconds = 0;

  // The latest report; without meaning before the first.
  bool has_step = false;
  uint64_t step = 0;  ///< done since the job's beginning, over all generations
  double loss = 0;    ///< mean over the gang
  double epoch = 0;   ///< done, as a fraction
  double top1 = 0;    ///< of training, mean over the gang, from 0 to 1
  double learning_rate = 0;
  double eta_seconds = 0;
  double images_per_second = 0;  ///< of this rank
  v1::RankSpread spread;         ///< of the gang; of 0 ranks where there is only one

  /// The latest validation pass that this rank told of.
  struct Validation {
    double loss = 0;
    double top1 = 0;
  };
  std::optional<Validation> validation;
  /// The latest checkpoint that this rank wrote.
  struct Written {
    double time_seconds = 0;  ///< since 1970 UTC
    double bytes = 0;
    double write_seconds = 0;
  };
  std::optional<Written> checkpoint;
};

/// Adds up what the ranks of one run on this node report, from their files' beginning: an agent that takes a
/// run up again goes on at the sums of the one before it. Reads beside the relay, which depends on the daemon
/// being there. Not thread-safe.
class RunMeter {
 public:
  RunMeter(const RunDir& dir, uint32_t ranks);

  /// Takes in what is new, about `most_bytes` of each rank. False when there may be more.
  bool Read(size_t most_bytes);
  /// False until the files' end was reached for the first time: until then the sums are those of some time
  /// ago.
  bool is_complete() const { return is_complete_; }
  /// By local rank.
  const std::vector<RankFigures>& ranks() const { return figures_; }

 private:
  std::vector<EventFollower> followers_;
  std::vector<RankFigures> figures_;
  bool is_complete_ = false;
};

/// Takes in whatever a rank told.
void TakeEvent(const v1::TrainerEvent& event, RankFigures& rank);
/// Adds a report to what came before it.
void AddReport(const v1::StepMetrics& report, RankFigures& rank);

}  // namespace imgd
