#pragma once

#include "trainer/torch.h"
//
#include "common/error.h"
#include "common/job_file.h"

namespace imgd::trainer {

struct SumOverRanks;

/// A network that maps images [N, 3, H, W] to logits [N, classes].
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor images) = 0;
  /// Name of the last linear layer, which a run on other classes makes anew.
  virtual std::string head() const = 0;
  /// How far from the input the parameter of this name is used: 0 for the first, more for later ones.
  virtual int LayerOf(const std::string& name) const = 0;
};

/// What a model is built for, besides what a job asks.
struct ModelShape {
  int classes = 1000;
  int image_size = 224;  ///< side of the images, pixels, at which position embeddings need no resizing
};

/// Builds the model that is asked for, on the CPU, with torchvision's initialisation (timm's for what
/// torchvision doesn't have), from LibTorch's global random generator: after torch::manual_seed(s) the
/// weights are those that torchvision makes after torch.manual_seed(s). All weights are channels_last, 1x1
/// convolutions included.
/// Errors: kInvalidArgument for a name that is not in ModelNames() of common/job_file.h.
Result<std::shared_ptr<Model>> MakeModel(const JobSpec::Model& asked, const ModelShape& shape);

/// Position embeddings [1, 1 + G * G, C] of a class token and a square of patches, for so many patches:
/// resized bicubically, with antialiasing, where the numbers differ.
at::Tensor ResizedPositions(const at::Tensor& positions, int64_t height, int64_t width);

/// Parameters in torchvision's order, with its names.
NamedTensors Parameters(const Model& model);

/// Running means, variances and counts of batch norm, with torchvision's names.
NamedTensors Buffers(const Model& model);

/// Parameters and buffers in the order of torchvision's state_dict().
NamedTensors StateDict(const Model& model);

/// Sets batch norm alone to training or evaluation mode.
void SetBatchNormTraining(Model& model, bool training);

/// Has all batch norm gather its statistics over all ranks' images from now on.
void SynchronizeBatchNorm(Model& model, const std::shared_ptr<const SumOverRanks>& over_ranks);

/// Whether this parameter is of a norm layer, a bias, a scale of channels, a class token or a position
/// embedding, which have a weight decay of their own, usually none.
bool IsNormOrBias(const std::string& name, const at::Tensor& parameter);

}  // namespace imgd::trainer
