#pragma once

#include <exception>

#include "common/checkpoint/safetensors.h"
#include "common/error.h"
#include "common/job_file.h"
#include "trainer/commands.h"
#include "trainer/environment.h"
#include "trainer/loop/run_state.h"
#include "trainer/report/reporter.h"
#include "trainer/whereabouts.h"

namespace imgd::trainer {

/// How a run ended that did not fail.
enum class RunEnd {
  kFinished,  ///< trained to the last step
  kStopped,   ///< ended on a stop command
};

/// Trains the job as this rank of it, from the newest checkpoint if there is one, on the calling thread.
/// `commands` may be set from other threads meanwhile, and `whereabouts` asked.
///
/// Errors: kInvalidArgument and kFailedPrecondition where the job or its data are at fault, so that a retry
/// would not help; kUnavailable and kDeadlineExceeded where a collective broke, so that another rank is
/// probably the cause; others for faults of this rank. With several ranks the sentence names this one.
Result<RunEnd> RunTraining(const JobSpec& spec, const Environment& env, report::Reporter& reporter,
                           Commands& commands, Whereabouts& whereabouts);

/// What RunEvaluation() found, over all ranks.
struct Evaluation {
  ValidationResult result;
  report::ClassFigures classes;
};

/// Validates the weights of model.init_from on data.val, as this rank of it. Errors: as RunTraining().
Result<Evaluation> RunEvaluation(const JobSpec& spec, const Environment& env, report::Reporter& reporter);

/// What a file of weights says of itself: safetensors' metadata, or the model of the lineage that
/// `imgcli export --to torch` puts into its file; nothing for other files. Errors: kInvalidArgument where it
/// can't be read.
Result<Metadata> MetadataOfWeights(const std::string& path);

/// The error that an exception of LibTorch's amounts to, with the code that RunTraining would give it.
Error ErrorOf(const Environment& env, const std::exception& e);

}  // namespace imgd::trainer
