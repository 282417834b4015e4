// Compiled where NVIDIA's headers are: what nvjpeg_api.h says is what they say.
#include <cuda_runtime_api.h>
#include <nvjpeg.h>

#include <type_traits>

#include "trainer/input/nvjpeg_api.h"

namespace imgd::trainer::nvjpeg {
namespace {

/// Passed alike: pointers, and whole numbers or enums of one size.
template <typename A, typename B>
constexpr bool kPassedAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                              (std::is_integral_v<A> || std::is_enum_v<A>) ==
                                  (std::is_integral_v<B> || std::is_enum_v<B>);

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};

template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R(A...), S(B...)>
    : std::bool_constant<kPassedAlike<R, S> && (kPassedAlike<A, B> && ...)> {
};

constexpr bool Same(int ours, int theirs) { return ours == theirs; }

static_assert(SameCall<CudaGetDeviceCount, decltype(::cudaGetDeviceCount)>::value);
static_assert(SameCall<CudaSetDevice, decltype(::cudaSetDevice)>::value);
static_assert(SameCall<CudaGetErrorString, decltype(::cudaGetErrorString)>::value);
static_assert(SameCall<CudaMalloc, decltype(::cudaMalloc)>::value);
static_assert(SameCall<CudaMalloc, decltype(::cudaMallocHost)>::value);
static_assert(SameCall<CudaFree, decltype(::cudaFree)>::value);
static_assert(SameCall<CudaFree, decltype(::cudaFreeHost)>::value);
static_assert(SameCall<CudaStreamCreateWithFlags, decltype(::cudaStreamCreateWithFlags)>::value);
static_assert(SameCall<CudaStreamDestroy, decltype(::cudaStreamDestroy)>::value);
static_assert(SameCall<CudaStreamSynchronize, decltype(::cudaStreamSynchronize)>::value);
static_assert(SameCall<CudaMemcpy2DAsync, decltype(::cudaMemcpy2DAsync)>::value);
static_assert(SameCall<NvjpegCreateSimple, decltype(::nvjpegCreateSimple)>::value);
static_assert(SameCall<NvjpegDestroy, decltype(::nvjpegDestroy)>::value);
static_assert(SameCall<NvjpegJpegStateCreate, decltype(::nvjpegJpegStateCreate)>::value);
static_assert(SameCall<NvjpegJpegStateDestroy, decltype(::nvjpegJpegStateDestroy)>::value);
static_assert(SameCall<NvjpegGetImageInfo, decltype(::nvjpegGetImageInfo)>::value);
static_assert(SameCall<NvjpegDecode, decltype(::nvjpegDecode)>::value);

static_assert(Same(kCudaSuccess, ::cudaSuccess));
static_assert(Same(kCudaOutOfMemory, ::cudaErrorMemoryAllocation));
static_assert(Same(kCudaDriverTooOld, ::cudaErrorInsufficientDriver));
static_assert(Same(kCudaNoDevice, ::cudaErrorNoDevice));
static_assert(Same(kCudaLaunchFailure, ::cudaErrorLaunchFailure));
static_assert(Same(kDeviceToHost, ::cudaMemcpyDeviceToHost));
static_assert(Same(kStreamNonBlocking, cudaStreamNonBlocking));

static_assert(Same(kSuccess, ::NVJPEG_STATUS_SUCCESS));
static_assert(Same(kNotInitialized, ::NVJPEG_STATUS_NOT_INITIALIZED));
static_assert(Same(kInvalidParameter, ::NVJPEG_STATUS_INVALID_PARAMETER));
static_assert(Same(kBadJpeg, ::NVJPEG_STATUS_BAD_JPEG));
static_assert(Same(kJpegNotSupported, ::NVJPEG_STATUS_JPEG_NOT_SUPPORTED));
static_assert(Same(kAllocatorFailure, ::NVJPEG_STATUS_ALLOCATOR_FAILURE));
static_assert(Same(kExecutionFailed, ::NVJPEG_STATUS_EXECUTION_FAILED));
static_assert(Same(kArchMismatch, ::NVJPEG_STATUS_ARCH_MISMATCH));
static_assert(Same(kInternalError, ::NVJPEG_STATUS_INTERNAL_ERROR));
static_assert(Same(kImplementationNotSupported, ::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED));
static_assert(Same(kIncompleteBitstream, ::NVJPEG_STATUS_INCOMPLETE_BITSTREAM));

static_assert(Same(kMaxComponents, NVJPEG_MAX_COMPONENT));
static_assert(Same(kRgbInterleaved, ::NVJPEG_OUTPUT_RGBI));
static_assert(sizeof(Image) == sizeof(::nvjpegImage_t));
static_assert(offsetof(Image, pitch) == offsetof(::nvjpegImage_t, pitch));

}  // namespace
}  // namespace imgd::trainer::nvjpeg
