#include "trainer/cuda/norm_kernels.h"

#include <ATen/cudnn/Handle.h>
#include <cudnn.h>

#include <memory>

namespace imgd::trainer {
namespace {

// As LibTorch has it where it calls cuDNN for such tensors.
constexpr auto kMode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;

void Check(cudnnStatus_t status) {
  TORCH_CHECK(status == CUDNN_STATUS_SUCCESS, "batch norm by cuDNN: ", cudnnGetErrorString(status));
}

struct Destroy {
  void operator()(cudnnTensorStruct* tensor) const { cudnnDestroyTensorDescriptor(tensor); }
  void operator()(cudnnActivationStruct* activation) const { cudnnDestroyActivationDescriptor(activation); }
};
using Shape = std::unique_ptr<cudnnTensorStruct, Destroy>;
using Activation = std::unique_ptr<cudnnActivationStruct, Destroy>;

Shape ShapeOf(cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w) {
  cudnnTensorDescriptor_t out = nullptr;
  Check(cudnnCreateTensorDescriptor(&out));
  Shape owned(out);
  Check(cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NHWC, type, static_cast<int>(n), static_cast<int>(c),
                                   static_cast<int>(h), static_cast<int>(w)));
  return owned;
}

Activation Relu() {
  cudnnActivationDescriptor_t out = nullptr;
  Check(cudnnCreateActivationDescriptor(&out));
  Activation owned(out);
  Check(cudnnSetActivationDescriptor(out, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  return owned;
}

/// How cuDNN is told of a call.
struct Call {
  Call(NormKernels::Then then, const at::Tensor& x)
      : handle(at::native::getCudnnHandle()),
        images(ShapeOf(x.scalar_type() == at::kHalf ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16, x.size(0),
                       x.size(1), x.size(2), x.size(3))),
        channels(ShapeOf(CUDNN_DATA_FLOAT, 1, x.size(1), 1, 1)) {
    if (then == NormKernels::Then::kNothing) return;
    ops = then == NormKernels::Then::kRelu ? CUDNN_BATCHNORM_OPS_BN_ACTIVATION
                                           : CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
    relu = Relu();
    activated = images.get();
    if (then == NormKernels::Then::kAddRelu) added = images.get();
  }

  cudnnHandle_t handle;
  Shape images, channels;
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;
  Activation relu;
  cudnnTensorDescriptor_t activated = nullptr;  ///< of images, where a ReLU follows
  cudnnTensorDescriptor_t added = nullptr;      ///< of images, where they are added
};

at::Tensor Bytes(size_t size, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(size)}, like.options().dtype(at::kByte));
}

/// cuDNN takes four channels at a time, and other shapes of these types by none of its kernels.
bool Takes(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) && x.dim() == 4 &&
         x.size(1) % 4 == 0 && x.numel() > 0 && x.numel() <= INT32_MAX &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

constexpr float kOne = 1, kZero = 0;

class CudnnNorm final : public NormKernels {
 public:
  std::optional<Normed> Forward(Then then, const at::Tensor& x, const at::Tensor& shortcut,
                                const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& running_mean, const at::Tensor& running_variance,
                                double momentum, double epsilon) override {
    if (!Takes(x)) return std::nullopt;
    if (then == Then::kAddRelu && !(Takes(shortcut) && shortcut.scalar_type() == x.scalar_type()))
      return std::nullopt;
    const Call call(then, x);
    size_t work = 0, reserved = 0;
    const auto status = cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        call.handle, kMode, call.ops, call.images.get(), call.added, call.images.get(), call.channels.get(),
        call.relu.get(), &work);
    if (status == CUDNN_STATUS_NOT_SUPPORTED) return std::nullopt;
    Check(status);
    Check(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(call.handle, kMode, call.ops, call.relu.get(),
                                                               call.images.get(), &reserved));
    Normed out{at::empty_like(x), at::empty_like(weight), at::empty_like(weight), Bytes(reserved, x)};
    const auto room = Bytes(work, x);
    Check(cudnnBatchNormalizationForwardTrainingEx(
        call.handle, kMode, call.ops, &kOne, &kZero, call.images.get(), x.data_ptr(), call.added,
        call.added != nullptr ? shortcut.data_ptr() : nullptr, call.images.get(), out.y.data_ptr(),
        call.channels.get(), weight.data_ptr(), bias.data_ptr(), momentum, running_mean.data_ptr(),
        running_variance.data_ptr(), epsilon, out.mean.data_ptr(), out.inverse.data_ptr(), call.relu.get(),
        room.data_ptr(), work, out.reserved.data_ptr(), reserved));
    return out;
  }

  Gradients Backward(Then then, const at::Tensor& dy, const at::Tensor& x, const Normed& normed,
                     const at::Tensor& weight, const at::Tensor& bias, double epsilon) override {
    const Call call(then, x);
    size_t work = 0;
    Check(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        call.handle, kMode, call.ops, call.images.get(), call.activated, call.images.get(), call.added,
        call.images.get(), call.channels.get(), call.relu.get(), &work));
    Gradients out{at::empty_like(x), at::empty_like(weight), at::empty_like(bias), {}};
    if (call.added != nullptr) out.shortcut = at::empty_like(x);
    const auto room = Bytes(work, x);
    Check(cudnnBatchNormalizationBackwardEx(
        call.handle, kMode, call.ops, &kOne, &kZero, &kOne, &kZero, call.images.get(), x.data_ptr(),
        call.activated, call.activated != nullptr ? normed.y.data_ptr() : nullptr, call.images.get(),
        dy.data_ptr(), call.added, call.added != nullptr ? out.shortcut.data_ptr() : nullptr,
        call.images.get(), out.x.data_ptr(), call.channels.get(), weight.data_ptr(), bias.data_ptr(),
        out.weight.data_ptr(), out.bias.data_ptr(), epsilon, normed.mean.data_ptr(),
        normed.inverse.data_ptr(), call.relu.get(), room.data_ptr(), work, normed.reserved.data_ptr(),
        static_cast<size_t>(normed.reserved.numel())));
    return out;
  }
};

}  // namespace

NormKernels& CudnnNormKernels() {
  static CudnnNorm kernels;
  return kernels;
}

}  // namespace imgd::trainer
