#pragma once

// The parts of the documented binary interfaces of the CUDA runtime (CUDA Runtime API Reference) and of
// nvJPEG (nvJPEG API Reference) that decoding calls, declared here so that it builds and is tested without
// NVIDIA's headers; nvjpeg_api_check.cc compares them where the headers are. The libraries are loaded at run
// time.
#include <cstddef>

namespace imgd::trainer::nvjpeg {

struct StreamState;
struct LibraryState;
struct DecoderState;
using Stream = StreamState*;    ///< cudaStream_t
using Library = LibraryState*;  ///< nvjpegHandle_t
using Decoder = DecoderState*;  ///< nvjpegJpegState_t

/// cudaError_t; in words: cudaGetErrorString.
using CudaError = int;
enum : CudaError {
  kCudaSuccess = 0,
  kCudaOutOfMemory = 2,
  kCudaDriverTooOld = 35,  ///< also where there is no driver
  kCudaNoDevice = 100,
  kCudaLaunchFailure = 719,
};
/// cudaMemcpyKind, cudaStreamCreateWithFlags.
enum : int { kDeviceToHost = 2 };
enum : unsigned { kStreamNonBlocking = 1 };

/// nvjpegStatus_t.
using Status = int;
enum : Status {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidParameter = 2,
  kBadJpeg = 3,
  kJpegNotSupported = 4,
  kAllocatorFailure = 5,
  kExecutionFailed = 6,
  kArchMismatch = 7,
  kInternalError = 8,
  kImplementationNotSupported = 9,
  kIncompleteBitstream = 10,
};

/// NVJPEG_MAX_COMPONENT; nvjpegOutputFormat_t: R, G, B, R, G, B and so on in channel 0.
enum : int { kMaxComponents = 4, kRgbInterleaved = 5 };

/// nvjpegImage_t: device memory, with the bytes from one row to the next.
struct Image {
  unsigned char* channel[kMaxComponents];
  size_t pitch[kMaxComponents];
};

using CudaGetDeviceCount = CudaError(int* count);
using CudaSetDevice = CudaError(int device);
using CudaGetErrorString = const char*(CudaError error);
/// cudaMalloc and cudaMallocHost; cudaFree and cudaFreeHost.
using CudaMalloc = CudaError(void** memory, size_t bytes);
using CudaFree = CudaError(void* memory);
using CudaStreamCreateWithFlags = CudaError(Stream* stream, unsigned flags);
using CudaStreamDestroy = CudaError(Stream stream);
using CudaStreamSynchronize = CudaError(Stream stream);
using CudaMemcpy2DAsync = CudaError(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                    size_t width_bytes, size_t height, int kind, Stream stream);

using NvjpegCreateSimple = Status(Library* library);
using NvjpegDestroy = Status(Library library);
using NvjpegJpegStateCreate = Status(Library library, Decoder* decoder);
using NvjpegJpegStateDestroy = Status(Decoder decoder);
/// `widths` and `heights` have kMaxComponents elements, the image's own size first.
using NvjpegGetImageInfo = Status(Library library, const unsigned char* file, size_t bytes, int* components,
                                  int* subsampling, int* widths, int* heights);
using NvjpegDecode = Status(Library library, Decoder decoder, const unsigned char* file, size_t bytes,
                            int format, Image* out, Stream stream);

}  // namespace imgd::trainer::nvjpeg
