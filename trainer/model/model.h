#pragma once

#include "trainer/torch.h"
//
#include "common/error.h"
#include "common/job_file.h"

namespace imgd::trainer {

/// A network that maps images [N, 3, H, W] to logits [N, classes].
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor images) = 0;
};

/// Builds the model that is asked for, for so many classes, on the CPU, with torchvision's initialisation,
/// from LibTorch's global random generator: after torch::manual_seed(s) the weights are those that
/// torchvision makes after torch.manual_seed(s). All weights are channels_last, 1x1 convolutions included.
/// Errors: kInvalidArgument for a name that is not in ModelNames() of common/job_file.h.
Result<std::shared_ptr<Model>> MakeModel(const JobSpec::Model& asked, int classes);

/// Parameters in torchvision's order, with its names.
NamedTensors Parameters(const Model& model);

/// Running means, variances and counts of batch norm, with torchvision's names.
NamedTensors Buffers(const Model& model);

/// Parameters and buffers in the order of torchvision's state_dict().
NamedTensors StateDict(const Model& model);

/// Sets batch norm alone to training or evaluation mode.
void SetBatchNormTraining(Model& model, bool training);

/// Whether weight decay is for this parameter: not for norm layers and biases.
bool Decays(const std::string& name, const at::Tensor& parameter);

}  // namespace imgd::trainer
