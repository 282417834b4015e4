// A library that answers the calls of the CUDA runtime and of nvJPEG as a GPU would, by libjpeg and malloc,
// so that decoding is tested on any machine. As on a GPU, nothing that is asked of a stream is done before
// somebody waits for it, each thread begins with GPU 0, and a GPU that has failed refuses all that follows.
//
// It refuses CMYK, progressive and arithmetic-coded files, and damaged ones; what else it does is set in
// Fake.
#include "trainer/input/testing/fake_nvjpeg.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/data/jpeg_errors.h"
#include "trainer/input/nvjpeg_api.h"

namespace imgd::trainer::nvjpeg {

struct StreamState {
  std::vector<std::function<void()>> work;
};
struct LibraryState {};
struct DecoderState {};

namespace {

Fake fake;
thread_local int current_device = 0;

bool Lost() { return fake.lost_at_decode > 0 && fake.decodes >= fake.lost_at_decode; }

CudaError Now(CudaError error = kCudaSuccess) { return Lost() ? kCudaLaunchFailure : error; }

CudaError Allocate(void** memory, size_t bytes, size_t limit) {
  if (Lost()) return kCudaLaunchFailure;
  if (bytes > limit) return kCudaOutOfMemory;
  *memory = std::malloc(bytes);
  ++fake.alive;
  ++fake.allocations.at(static_cast<size_t>(current_device));
  return kCudaSuccess;
}

CudaError Free(void* memory) {
  std::free(memory);
  --fake.alive;
  return Now();
}

/// A file that is being read, and its pixels.
struct File {
  data::JpegErrors errors{/*strict=*/true};
  jpeg_decompress_struct cinfo{};
  std::vector<uint8_t> rgb;

  File() { cinfo.err = errors.Install(); }
  ~File() { jpeg_destroy_decompress(&cinfo); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool Open(const unsigned char* file, size_t bytes) {
    return errors.Guard([this, file, bytes] {
      jpeg_create_decompress(&cinfo);
      jpeg_mem_src(&cinfo, file, bytes);
      jpeg_read_header(&cinfo, TRUE);
    });
  }

  bool IsSupported() const {
    return cinfo.num_components != 4 && cinfo.progressive_mode == FALSE && cinfo.arith_code == FALSE;
  }

  bool Decode() {
    cinfo.out_color_space = JCS_RGB;
    const size_t pitch = size_t{cinfo.image_width} * 3;
    rgb.resize(pitch * cinfo.image_height);
    return errors.Guard([this, pitch] {
      jpeg_start_decompress(&cinfo);
      while (cinfo.output_scanline < cinfo.output_height) {
        uint8_t* row = rgb.data() + cinfo.output_scanline * pitch;
        jpeg_read_scanlines(&cinfo, &row, 1);
      }
      jpeg_finish_decompress(&cinfo);
    });
  }
};

void CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
  for (size_t y = 0; y < height; ++y) {
    std::memcpy(static_cast<uint8_t*>(to) + y * to_pitch, static_cast<const uint8_t*>(from) + y * from_pitch,
                width);
  }
}

}  // namespace
}  // namespace imgd::trainer::nvjpeg

extern "C" {

using namespace imgd::trainer::nvjpeg;

Fake* FakeNvjpeg() { return &fake; }

CudaError cudaGetDeviceCount(int* count) {
  *count = fake.devices;
  return fake.devices == 0 ? kCudaDriverTooOld : Now();
}

CudaError cudaSetDevice(int device) {
  current_device = device;
  return Now();
}

const char* cudaGetErrorString(CudaError error) {
  switch (error) {
    case kCudaOutOfMemory:
      return "out of memory";
    case kCudaDriverTooOld:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case kCudaLaunchFailure:
      return "unspecified launch failure";
    default:
      return "unrecognized error code";
  }
}

CudaError cudaMalloc(void** memory, size_t bytes) { return Allocate(memory, bytes, fake.memory); }
CudaError cudaMallocHost(void** memory, size_t bytes) { return Allocate(memory, bytes, SIZE_MAX); }
CudaError cudaFree(void* memory) { return Free(memory); }
CudaError cudaFreeHost(void* memory) { return Free(memory); }

CudaError cudaStreamCreateWithFlags(Stream* stream, unsigned) {
  if (Lost()) return kCudaLaunchFailure;
  *stream = new StreamState();
  ++fake.alive;
  return kCudaSuccess;
}

CudaError cudaStreamDestroy(Stream stream) {
  delete stream;
  --fake.alive;
  return Now();
}

CudaError cudaStreamSynchronize(Stream stream) {
  if (Lost()) return kCudaLaunchFailure;
  for (const auto& work : std::exchange(stream->work, {})) work();
  return kCudaSuccess;
}

CudaError cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                            size_t height, int, Stream stream) {
  if (Lost()) return kCudaLaunchFailure;
  stream->work.emplace_back([=] { CopyRows(to, to_pitch, from, from_pitch, width, height); });
  return kCudaSuccess;
}

Status nvjpegCreateSimple(Library* library) {
  *library = new LibraryState();
  ++fake.alive;
  return kSuccess;
}

Status nvjpegDestroy(Library library) {
  delete library;
  --fake.alive;
  return kSuccess;
}

Status nvjpegJpegStateCreate(Library, Decoder* decoder) {
  if (fake.refuse_decoder != 0) return fake.refuse_decoder;
  *decoder = new DecoderState();
  ++fake.alive;
  return kSuccess;
}

Status nvjpegJpegStateDestroy(Decoder decoder) {
  delete decoder;
  --fake.alive;
  return kSuccess;
}

Status nvjpegGetImageInfo(Library, const unsigned char* file, size_t bytes, int* components, int* subsampling,
                          int* widths, int* heights) {
  File opened;
  if (!opened.Open(file, bytes)) return kBadJpeg;
  *components = opened.cinfo.num_components;
  *subsampling = 0;
  widths[0] = static_cast<int>(opened.cinfo.image_width) + fake.wider;
  heights[0] = static_cast<int>(opened.cinfo.image_height);
  return kSuccess;
}

Status nvjpegDecode(Library, Decoder, const unsigned char* file, size_t bytes, int format, Image* out,
                    Stream stream) {
  ++fake.decodes;
  if (Lost()) return kExecutionFailed;
  if (fake.refuse != 0) return fake.refuse;
  if (format != kRgbInterleaved) return kInvalidParameter;
  File opened;
  if (!opened.Open(file, bytes)) return kBadJpeg;
  if (!opened.IsSupported()) return kJpegNotSupported;
  if (!opened.Decode()) return kBadJpeg;
  const size_t row = size_t{opened.cinfo.image_width} * 3;
  const size_t rows = opened.cinfo.image_height;
  stream->work.emplace_back([rgb = std::move(opened.rgb), to = *out, row, rows] {
    CopyRows(to.channel[0], to.pitch[0], rgb.data(), row, row, rows);
  });
  return kSuccess;
}

}  // extern "C"
