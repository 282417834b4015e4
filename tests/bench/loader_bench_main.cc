// How fast the loader makes training batches: OpenDataset and Loader as training uses them, or libjpeg-turbo
// alone decoding the same crops. With `--decoder nvjpeg`, of the libraries in $IMGD_NVJPEG_LIBRARY and
// $IMGD_CUDART_LIBRARY, the loader's decoding is done on GPU 0. Prints one line of JSON. Exit code 3: this
// build, or this machine, can't do it, with the reason.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/files.h"
#include "tests/bench/ceiling.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/input/nvjpeg_decoder.h"

namespace imgd::data {
namespace {

constexpr int kBatch = 64;
constexpr int kCropSize = 224;
/// Their pixels and labels are what the sums are of; they are not timed.
constexpr int kWarmUp = 8;

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Sums {
  double pixels = 0;
  double labels = 0;
  double images = 0;
  std::vector<uint8_t> order;  ///< the labels, 4 bytes each

  void Add(const Batch& batch) {
    uint64_t pixel_sum = 0;
    for (const uint8_t p : batch.pixels) pixel_sum += p;
    pixels += static_cast<double>(pixel_sum);
    for (const int32_t label : batch.labels) {
      labels += label;
      for (int shift = 0; shift < 32; shift += 8) order.push_back(static_cast<uint8_t>(label >> shift));
    }
    images += batch.count();
  }
};

/// The kernel's words on this process, such as "VmHWM:"; MiB.
double MemoryMib(const std::string& file, std::string_view key) {
  const auto text = ReadFile(file);
  const size_t at = text ? text->find(key) : std::string::npos;
  return at == std::string::npos ? 0 : std::strtod(text->c_str() + at + key.size(), nullptr) / 1024;
}

/// Loaders differ in whether they have modes, so that older ones can be measured beside newer ones.
template <typename Options>
bool SetMode(Options& options, bool exact) {
  if constexpr (requires { options.decode; }) {
    using Mode = decltype(options.decode);
    options.decode = exact ? Mode::kExact : Mode::kFast;
    return true;
  } else {
    return !exact;
  }
}

Status MeasureLoader(const std::string& where, LoaderOptions options, double seconds, uint64_t least_images) {
  IMGD_ASSIGN(const auto set, OpenDataset(where));
  options.training = true;
  options.crop_size = kCropSize;
  options.global_batch = kBatch;
  options.seed = 1;
  options.end_step = UINT32_MAX;
  Loader loader(*set, options);
  Sums sums;
  uint64_t images = 0;
  Clock::time_point start;
  // Steps per epoch end with a smaller one; images are counted, not steps.
  for (int step = 0; step <= kWarmUp || Since(start) < seconds || images < least_images; ++step) {
    IMGD_ASSIGN(auto batch, loader.Next());
    if (step < kWarmUp) sums.Add(*batch);
    if (step > kWarmUp) images += static_cast<uint64_t>(batch->count());
    loader.Recycle(std::move(*batch));
    if (step == kWarmUp) start = Clock::now();
  }
  const double took = Since(start);
  const LoaderFigures figures = loader.figures();
  const double left = static_cast<double>(figures.images_left_to_cpu) / static_cast<double>(figures.images);
  fmt::print(
      "{{\"images\": {}, \"seconds\": {:.4f}, \"images_per_second\": {:.2f}, \"pixel_mean\": {:.3f}, "
      "\"label_mean\": {:.3f}, \"label_order\": \"{:08x}\", \"peak_rss_mib\": {:.1f}, \"pss_mib\": "
      "{:.1f}{}}}\n",
      images, took, static_cast<double>(images) / took,
      sums.pixels / (sums.images * kCropSize * kCropSize * 3), sums.labels / sums.images, Crc32c(sums.order),
      MemoryMib("/proc/self/status", "VmHWM:"), MemoryMib("/proc/self/smaps_rollup", "\nPss:"),
      options.decoder ? fmt::format(", \"left_to_cpu_percent\": {:.2f}", 100 * left) : "");
  return {};
}

Status MeasureCeiling(const std::string& where, const CeilingOptions& options) {
  IMGD_ASSIGN(const auto set, OpenDataset(where));
  IMGD_ASSIGN(const auto result, RunCeiling(*set, options));
  fmt::print(
      "{{\"images\": {}, \"seconds\": {:.4f}, \"images_per_second\": {:.2f}, \"pixel_mean\": {:.3f}, "
      "\"peak_rss_mib\": {:.1f}}}\n",
      result.images, result.seconds, static_cast<double>(result.images) / result.seconds, result.pixel_mean,
      MemoryMib("/proc/self/status", "VmHWM:"));
  return {};
}

/// Decodes on GPU 0.
Status TakeNvjpeg(LoaderOptions& options) {
  trainer::NvjpegLibraries libraries;
  if (const char* file = std::getenv("IMGD_NVJPEG_LIBRARY")) libraries.nvjpeg = file;
  if (const char* file = std::getenv("IMGD_CUDART_LIBRARY")) libraries.cudart = file;
  IMGD_ASSIGN(const auto nvjpeg, trainer::Nvjpeg::Load(libraries, 0));
  options.decoder = [nvjpeg] { return trainer::MakeNvjpegDecoder(nvjpeg); };
  return {};
}

}  // namespace
}  // namespace imgd::data

int main(int argc, char** argv) {
  using namespace imgd::data;
  const bool names_decoder = argc == 9 && std::string_view(argv[7]) == "--decoder";
  const std::string_view decoder = names_decoder ? argv[8] : "cpu";
  if ((argc != 7 && !names_decoder) || (decoder != "cpu" && decoder != "nvjpeg")) {
    std::fprintf(stderr,
                 "usage: loader_bench loader|ceiling SET fast|exact THREADS SECONDS LEAST_IMAGES "
                 "[--decoder cpu|nvjpeg]\n");
    return 2;
  }
  const bool exact = std::string_view(argv[3]) == "exact";
  const int threads = std::atoi(argv[4]);
  const double seconds = std::atof(argv[5]);
  const auto least = static_cast<uint64_t>(std::atoll(argv[6]));
  imgd::Status status;
  if (std::string_view(argv[1]) == "ceiling") {
    status = MeasureCeiling(argv[2], {kCropSize, exact, threads, seconds});
  } else {
    LoaderOptions options;
    options.workers = threads;
    if (!SetMode(options, exact)) {
      std::fprintf(stderr, "this build's loader has no %s mode\n", argv[3]);
      return 3;
    }
    if (decoder == "nvjpeg") {
      if (const auto taken = TakeNvjpeg(options); !taken) {
        std::fprintf(stderr, "%s\n", taken.error().message.c_str());
        return 3;
      }
    }
    status = MeasureLoader(argv[2], options, seconds, least);
  }
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
