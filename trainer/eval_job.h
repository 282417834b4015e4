#pragma once

#include <string>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/error.h"
#include "common/job_file.h"

namespace imgd::trainer {

/// `imgtrain eval WEIGHTS DATA`, as the command line has it.
struct EvalArguments {
  std::string weights;
  std::string data;
  std::string model;                  ///< --model; empty: as the weights say
  std::vector<std::string> settings;  ///< --set: PATH=VALUE
};

/// The job that such an evaluation is: the model and what images are normalised by as `metadata`, the
/// weights', say it; the weights; and the data as validation set. Errors: kInvalidArgument for a model that
/// is not known or not said, and for settings that an evaluation has no use for; those of the job file.
tl::expected<JobSpec, std::vector<Error>> EvalJob(const EvalArguments& arguments, Metadata metadata);

}  // namespace imgd::trainer
