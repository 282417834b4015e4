#include "trainer/input/nvjpeg_decoder.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/data/jpeg.h"
#include "trainer/input/nvjpeg_api.h"

namespace imgd::trainer {
namespace {

using data::DecodedPart;
using data::JpegDecoder;
using data::JpegSize;
using data::PixelRegion;
using nvjpeg::CudaError;

/// Never closed: a driver's threads may still be in it.
Result<void*> OpenLibrary(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library != nullptr) return library;
  return Fail(ErrorCode::kFailedPrecondition, "cannot load {}: {}", name, ::dlerror());
}

/// An open library, and what it is called.
struct Symbols {
  void* library;
  const std::string& name;

  template <typename Function>
  Status Find(const char* symbol, Function*& out) const {
    out = reinterpret_cast<Function*>(::dlsym(library, symbol));
    if (out != nullptr) return {};
    return Fail(ErrorCode::kFailedPrecondition, "{} has no {}", name, symbol);
  }
};

std::string NameOf(nvjpeg::Status status) {
  static constexpr std::array<const char*, 11> kNames = {"SUCCESS",
                                                         "NOT_INITIALIZED",
                                                         "INVALID_PARAMETER",
                                                         "BAD_JPEG",
                                                         "JPEG_NOT_SUPPORTED",
                                                         "ALLOCATOR_FAILURE",
                                                         "EXECUTION_FAILED",
                                                         "ARCH_MISMATCH",
                                                         "INTERNAL_ERROR",
                                                         "IMPLEMENTATION_NOT_SUPPORTED",
                                                         "INCOMPLETE_BITSTREAM"};
  const auto index = static_cast<size_t>(status);
  return index < kNames.size() ? fmt::format("NVJPEG_STATUS_{}", kNames[index])
                               : fmt::format("nvJPEG status {}", status);
}

/// Memory of CUDA's that grows, on the device or pinned on the host.
class CudaBuffer {
 public:
  CudaBuffer(nvjpeg::CudaMalloc* take, nvjpeg::CudaFree* give_back) : take_(take), give_back_(give_back) {}
  ~CudaBuffer() { Release(); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  /// Makes room for `bytes`, to a power of two, since CUDA stops all work when memory is given back. What was
  /// in it is lost.
  CudaError Reserve(size_t bytes) {
    if (bytes <= size_) return nvjpeg::kCudaSuccess;
    Release();
    const size_t size = std::bit_ceil(bytes);
    const CudaError error = take_(&data_, size);
    if (error == nvjpeg::kCudaSuccess) {
      size_ = size;
    } else {
      data_ = nullptr;
    }
    return error;
  }

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void Release() {
    if (data_ != nullptr) give_back_(data_);
    data_ = nullptr;
    size_ = 0;
  }

  nvjpeg::CudaMalloc* take_;
  nvjpeg::CudaFree* give_back_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

struct Nvjpeg::State {
  int device = 0;
  nvjpeg::CudaGetDeviceCount* get_device_count;
  nvjpeg::CudaSetDevice* set_device;
  nvjpeg::CudaGetErrorString* error_string;
  nvjpeg::CudaMalloc* malloc_device;
  nvjpeg::CudaFree* free_device;
  nvjpeg::CudaMalloc* malloc_host;
  nvjpeg::CudaFree* free_host;
  nvjpeg::CudaStreamCreateWithFlags* stream_create;
  nvjpeg::CudaStreamDestroy* stream_destroy;
  nvjpeg::CudaStreamSynchronize* stream_synchronize;
  nvjpeg::CudaMemcpy2DAsync* copy_2d;
  nvjpeg::NvjpegCreateSimple* create;
  nvjpeg::NvjpegDestroy* destroy;
  nvjpeg::NvjpegJpegStateCreate* decoder_create;
  nvjpeg::NvjpegJpegStateDestroy* decoder_destroy;
  nvjpeg::NvjpegGetImageInfo* get_image_info;
  nvjpeg::NvjpegDecode* decode;
  nvjpeg::Library library = nullptr;

  std::mutex mutex;
  std::string first_refusal;  ///< guarded by the mutex

  ~State() {
    if (library != nullptr) destroy(library);
  }

  Status FindAll(const Symbols& cudart, const Symbols& lib);
  Status FindDevice() const;
  void NoteRefusal(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (first_refusal.empty()) first_refusal = why;
  }
};

Status Nvjpeg::State::FindAll(const Symbols& cudart, const Symbols& lib) {
  IMGD_TRY(cudart.Find("cudaGetDeviceCount", get_device_count));
  IMGD_TRY(cudart.Find("cudaSetDevice", set_device));
  IMGD_TRY(cudart.Find("cudaGetErrorString", error_string));
  IMGD_TRY(cudart.Find("cudaMalloc", malloc_device));
  IMGD_TRY(cudart.Find("cudaFree", free_device));
  IMGD_TRY(cudart.Find("cudaMallocHost", malloc_host));
  IMGD_TRY(cudart.Find("cudaFreeHost", free_host));
  IMGD_TRY(cudart.Find("cudaStreamCreateWithFlags", stream_create));
  IMGD_TRY(cudart.Find("cudaStreamDestroy", stream_destroy));
  IMGD_TRY(cudart.Find("cudaStreamSynchronize", stream_synchronize));
  IMGD_TRY(cudart.Find("cudaMemcpy2DAsync", copy_2d));
  IMGD_TRY(lib.Find("nvjpegCreateSimple", create));
  IMGD_TRY(lib.Find("nvjpegDestroy", destroy));
  IMGD_TRY(lib.Find("nvjpegJpegStateCreate", decoder_create));
  IMGD_TRY(lib.Find("nvjpegJpegStateDestroy", decoder_destroy));
  IMGD_TRY(lib.Find("nvjpegGetImageInfo", get_image_info));
  return lib.Find("nvjpegDecode", decode);
}

Status Nvjpeg::State::FindDevice() const {
  int count = 0;
  const CudaError error = get_device_count(&count);
  if (error == nvjpeg::kCudaNoDevice || error == nvjpeg::kCudaDriverTooOld) {
    return Fail(ErrorCode::kFailedPrecondition, "no GPU: {}", error_string(error));
  }
  if (error != nvjpeg::kCudaSuccess) {
    return Fail(ErrorCode::kFailedPrecondition, "CUDA can't count the GPUs: {}", error_string(error));
  }
  if (device < count) return {};
  return Fail(ErrorCode::kFailedPrecondition, "there is no GPU {}: CUDA sees {}", device, count);
}

Nvjpeg::Nvjpeg(std::unique_ptr<State> state) : state_(std::move(state)) {}
Nvjpeg::~Nvjpeg() = default;

Result<std::shared_ptr<Nvjpeg>> Nvjpeg::Load(const NvjpegLibraries& libraries, int device) {
  IMGD_ASSIGN(void* cudart, OpenLibrary(libraries.cudart));
  IMGD_ASSIGN(void* library, OpenLibrary(libraries.nvjpeg));
  auto state = std::make_unique<State>();
  state->device = device;
  IMGD_TRY(state->FindAll({cudart, libraries.cudart}, {library, libraries.nvjpeg}));
  IMGD_TRY(state->FindDevice());
  if (const CudaError error = state->set_device(device); error != nvjpeg::kCudaSuccess) {
    return Fail(ErrorCode::kFailedPrecondition, "CUDA can't use GPU {}: {}", device,
                state->error_string(error));
  }
  if (const auto status = state->create(&state->library); status != nvjpeg::kSuccess) {
    state->library = nullptr;
    return Fail(ErrorCode::kFailedPrecondition, "nvJPEG can't be initialised on GPU {}: {}", device,
                NameOf(status));
  }
  return std::shared_ptr<Nvjpeg>(new Nvjpeg(std::move(state)));
}

std::string Nvjpeg::first_refusal() const {
  const std::lock_guard lock(state_->mutex);
  return state_->first_refusal;
}

class NvjpegDecoder final : public data::ImageDecoder {
 public:
  explicit NvjpegDecoder(std::shared_ptr<Nvjpeg> nvjpeg)
      : nvjpeg_(std::move(nvjpeg)),
        gpu_(*nvjpeg_->state_),
        image_(gpu_.malloc_device, gpu_.free_device),
        part_(gpu_.malloc_host, gpu_.free_host) {}

  ~NvjpegDecoder() override {
    if (decoder_ != nullptr) gpu_.decoder_destroy(decoder_);
    if (stream_ != nullptr) gpu_.stream_destroy(stream_);
  }
  NvjpegDecoder(const NvjpegDecoder&) = delete;
  NvjpegDecoder& operator=(const NvjpegDecoder&) = delete;

  Status SetUp() {
    // Each thread of a process begins with GPU 0.
    CudaError error = gpu_.set_device(gpu_.device);
    if (error == nvjpeg::kCudaSuccess) error = gpu_.stream_create(&stream_, nvjpeg::kStreamNonBlocking);
    if (error != nvjpeg::kCudaSuccess) {
      stream_ = nullptr;
      return Fail(ErrorCode::kInternal, "nvJPEG gets no stream on GPU {}: {}", gpu_.device,
                  gpu_.error_string(error));
    }
    const auto status = gpu_.decoder_create(gpu_.library, &decoder_);
    if (status == nvjpeg::kSuccess) return {};
    decoder_ = nullptr;
    return Fail(ErrorCode::kInternal, "nvJPEG makes no decoder on GPU {}: {}", gpu_.device, NameOf(status));
  }

  Result<JpegSize> Open(std::span<const uint8_t> file, data::RestartIndex restarts) override {
    file_ = file;
    IMGD_ASSIGN(size_, cpu_.Open(file, restarts));
    return size_;
  }

  Result<DecodedPart> Decode(const data::Box& box, double margin, int min_width, int min_height,
                             data::DecodeMode mode) override {
    IMGD_ASSIGN(const auto part, DecodeOnGpu(box, margin));
    if (part) return *part;
    IMGD_ASSIGN(const DecodedPart by_cpu, cpu_.Decode(box, margin, min_width, min_height, mode));
    ++left_to_cpu_;
    return by_cpu;
  }

  uint64_t images_left_to_cpu() const override { return left_to_cpu_; }

 private:
  using OnGpu = Result<std::optional<DecodedPart>>;  ///< nothing: the CPU is to decode it

  OnGpu DecodeOnGpu(const data::Box& box, double margin) {
    const auto columns = static_cast<size_t>(size_.width);
    const size_t bytes = columns * static_cast<size_t>(size_.height) * 3;
    if (cpu_.stores_rgb()) return LeaveToCpu("its colours are stored as RGB");
    if (bytes > JpegDecoder::kMaxBytes) {
      return LeaveToCpu(fmt::format("{} x {} pixels need {} MiB on the GPU; at most {} MiB are allowed",
                                    size_.width, size_.height, bytes >> 20, JpegDecoder::kMaxBytes >> 20));
    }
    std::array<int, nvjpeg::kMaxComponents> widths{};
    std::array<int, nvjpeg::kMaxComponents> heights{};
    int components = 0;
    int subsampling = 0;
    nvjpeg::Status status = gpu_.get_image_info(gpu_.library, file_.data(), file_.size(), &components,
                                                &subsampling, widths.data(), heights.data());
    if (status != nvjpeg::kSuccess) return Refused(status);
    // It would write so many pixels, whatever room there is.
    if (widths[0] != size_.width || heights[0] != size_.height)
      return LeaveToCpu("nvJPEG finds another size in it");

    const PixelRegion region = data::RegionOf(box, margin, 1, size_.width, size_.height);
    const auto part_bytes =
        static_cast<size_t>(region.right - region.left) * static_cast<size_t>(region.bottom - region.top) * 3;
    CudaError error = image_.Reserve(bytes);
    if (error == nvjpeg::kCudaSuccess) error = part_.Reserve(part_bytes + 1);
    if (error == nvjpeg::kCudaOutOfMemory) return LeaveToCpu(gpu_.error_string(error));
    if (error != nvjpeg::kCudaSuccess) return Lost(error);

    nvjpeg::Image out{};
    out.channel[0] = image_.data();
    out.pitch[0] = columns * 3;
    status = gpu_.decode(gpu_.library, decoder_, file_.data(), file_.size(), nvjpeg::kRgbInterleaved, &out,
                         stream_);
    if (status != nvjpeg::kSuccess) return Refused(status);
    error = FetchPart(region, columns * 3);
    if (error != nvjpeg::kCudaSuccess) return Lost(error);
    return DecodedPart{.pixels = Spread(region),
                       .box = {box.left - region.left, box.top - region.top, box.width, box.height}};
  }

  CudaError FetchPart(const PixelRegion& region, size_t pitch) {
    const auto row_bytes = static_cast<size_t>(region.right - region.left) * 3;
    const uint8_t* first =
        image_.data() + static_cast<size_t>(region.top) * pitch + static_cast<size_t>(region.left) * 3;
    const CudaError error =
        gpu_.copy_2d(part_.data(), row_bytes, first, pitch, row_bytes,
                     static_cast<size_t>(region.bottom - region.top), nvjpeg::kDeviceToHost, stream_);
    return error == nvjpeg::kCudaSuccess ? gpu_.stream_synchronize(stream_) : error;
  }

  /// The part with four bytes a pixel, as ImageView has them. The fourth is the next pixel's first; part_ has
  /// one byte more than there are.
  data::ImageView Spread(const PixelRegion& region) {
    const int width = region.right - region.left;
    const int height = region.bottom - region.top;
    const size_t count = static_cast<size_t>(width) * static_cast<size_t>(height);
    if (pixels_.size() < count * 4) pixels_.resize(count * 4);
    const uint8_t* from = part_.data();
    uint8_t* to = pixels_.data();
    for (size_t i = 0; i < count; ++i, from += 3, to += 4) std::memcpy(to, from, 4);
    return {pixels_.data(), width, height, 0};
  }

  OnGpu LeaveToCpu(const std::string& why) {
    gpu_.NoteRefusal(why);
    return std::optional<DecodedPart>();
  }

  /// A status tells of the file, or of the GPU that has failed meanwhile: CUDA knows which.
  OnGpu Refused(nvjpeg::Status status) {
    if (const CudaError error = gpu_.stream_synchronize(stream_); error != nvjpeg::kCudaSuccess)
      return Lost(error);
    if (status == nvjpeg::kNotInitialized || status == nvjpeg::kArchMismatch) {
      return Fail(ErrorCode::kUnavailable, "nvJPEG can't work on GPU {}: {}", gpu_.device, NameOf(status));
    }
    return LeaveToCpu(NameOf(status));
  }

  OnGpu Lost(CudaError error) const {
    return Fail(ErrorCode::kUnavailable, "GPU {} has failed: {}", gpu_.device, gpu_.error_string(error));
  }

  const std::shared_ptr<Nvjpeg> nvjpeg_;
  Nvjpeg::State& gpu_;
  nvjpeg::Stream stream_ = nullptr;
  nvjpeg::Decoder decoder_ = nullptr;
  CudaBuffer image_;             ///< the whole image, on the device
  CudaBuffer part_;              ///< what was asked for of it, pinned
  std::vector<uint8_t> pixels_;  ///< the same, four bytes a pixel
  JpegDecoder cpu_;
  std::span<const uint8_t> file_;
  JpegSize size_;
  uint64_t left_to_cpu_ = 0;
};

Result<std::unique_ptr<data::ImageDecoder>> MakeNvjpegDecoder(std::shared_ptr<Nvjpeg> nvjpeg) {
  auto decoder = std::make_unique<NvjpegDecoder>(std::move(nvjpeg));
  IMGD_TRY(decoder->SetUp());
  return std::unique_ptr<data::ImageDecoder>(std::move(decoder));
}

}  // namespace imgd::trainer
