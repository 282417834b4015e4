#pragma once

#include <optional>

#include "trainer/torch.h"

namespace imgd::trainer {

/// Batch norm while training, with what follows on it, in one kernel each way: cuDNN's
/// cudnnBatchNormalizationForwardTrainingEx and BackwardEx, which LibTorch has for fp16 alone and without
/// what follows. They are bound by the GPU's memory, of which the separate kernels read and write twice as
/// much.
class NormKernels {
 public:
  enum class Then { kNothing, kRelu, kAddRelu };

  /// What Backward() needs beside the layer's own.
  struct Normed {
    at::Tensor y;              ///< as x; not for the way back where nothing follows
    at::Tensor mean, inverse;  ///< [C] floats, of this batch; the inverse is of the standard deviation
    at::Tensor reserved;       ///< cuDNN's own, bytes
  };
  struct Gradients {
    at::Tensor x, weight, bias;
    at::Tensor shortcut;  ///< with kAddRelu
  };

  virtual ~NormKernels() = default;

  /// y = norm(x), relu(norm(x)) or relu(norm(x) + shortcut); moves the running statistics by `momentum`.
  /// `x`, `shortcut`: [N, C, H, W]; the others [C] floats on the same device. Nothing where there is no such
  /// kernel: cuDNN's are for bf16 and fp16 on a GPU, channels_last.
  virtual std::optional<Normed> Forward(Then then, const at::Tensor& x, const at::Tensor& shortcut,
                                        const at::Tensor& weight, const at::Tensor& bias,
                                        const at::Tensor& running_mean, const at::Tensor& running_variance,
                                        double momentum, double epsilon) = 0;

  /// `dy`: as x, channels_last.
  virtual Gradients Backward(Then then, const at::Tensor& dy, const at::Tensor& x, const Normed& normed,
                             const at::Tensor& weight, const at::Tensor& bias, double epsilon) = 0;
};

/// The module's.
NormKernels& CudnnNormKernels();

}  // namespace imgd::trainer
