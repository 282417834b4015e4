#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "trainer/cuda/cuda_parts.h"
#include "trainer/library_versions.h"

namespace imgd::trainer {
namespace {

/// What NVIDIA's driver makes, on Windows' Linux too.
bool MachineHasGpu() { return ::access("/dev/nvidiactl", F_OK) == 0 || ::access("/dev/dxg", F_OK) == 0; }

/// The variable shows the GPUs that stand before the first that there can't be.
bool AllAreHidden() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && (*visible == '\0' || std::string_view(visible).starts_with("-1"));
}

#ifdef IMGD_CUDA
/// Beside the program, or where packages put it.
std::filesystem::path ModulePath() {
  constexpr const char* kName = "libimgtrain_cuda.so";
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto beside = program / kName;
  return std::filesystem::exists(beside, error) ? beside : program.parent_path() / "lib/imgd" / kName;
}

Result<CudaParts*> Load() {
  // Its symbols are for the libraries that LibTorch loads in turn, too.
  void* module = ::dlopen(ModulePath().c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* find = module == nullptr ? nullptr : ::dlsym(module, kCudaPartsSymbol);
  if (find == nullptr) {
    const char* why = ::dlerror();
    return Fail(ErrorCode::kFailedPrecondition, "the trainer's part for GPUs can't be loaded: {}",
                why == nullptr ? "it lacks its beginning" : why);
  }
  return reinterpret_cast<CudaParts* (*)()>(find)();
}
#else
Result<CudaParts*> Load() { return nullptr; }
#endif

CudaParts* loaded = nullptr;

}  // namespace

Result<CudaParts*> FindCudaParts(bool wanted) {
  if (loaded == nullptr && (wanted || (MachineHasGpu() && !AllAreHidden()))) {
    IMGD_ASSIGN(loaded, Load());
  }
  return loaded;
}

CudaParts& LoadedCudaParts() { return *loaded; }

std::string LibraryVersions() {
  const std::string torch = fmt::format("LibTorch {}\n", TORCH_VERSION);
  const auto parts = FindCudaParts(/*wanted=*/true);
  if (!parts) return fmt::format("{}error: {}\n", torch, parts.error().message);
  return torch + (*parts == nullptr ? "CUDA none\nNCCL none\n" : (*parts)->Versions());
}

}  // namespace imgd::trainer
