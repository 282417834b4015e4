#pragma once

#include <string>

#include "common/error.h"
#include "common/job_file.h"
#include "trainer/model/model.h"

namespace imgd::trainer {

/// Sets a model's weights from the file, or object in S3, `job.model.init_from`: safetensors, or what
/// torch.save() wrote of a state dict, alone or below "state_dict" or "model", with or without "module."
/// before each name. Names are torchvision's (timm's for what torchvision doesn't have), or timm's of a
/// ConvNeXt. Where the file is of other classes, the model keeps its new head; position embeddings are
/// resized to the model's. Returns a sentence that says what was done. Errors: kInvalidArgument where the
/// file is none of these, or is of another model than the job's, by its tensors or by what it says of itself.
enum class NewHead { kAllowed, kRefused };
Result<std::string> InitFrom(Model& model, const JobSpec& job, NewHead new_head);

}  // namespace imgd::trainer
