// Measures how fast training crops are made, beside what libjpeg-turbo alone could do. The images are read
// into memory first. Case by case in each pass, so that all meet the same disturbances. Prints a JSON object:
// each case's images per second (median over the passes), its processor time, and how many times the
// ceiling's that is.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trainer/data/crop.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jpeg_errors.h"
#include "trainer/data/restart_index.h"
#include "trainer/data/sample.h"
#include "trainer/data/source.h"

namespace imgd::data {
namespace {

constexpr int kCropSize = 224;
constexpr double kMinScale = 0.08;
constexpr uint64_t kSeed = 1;

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

// libjpeg-turbo alone: decodes the rows and columns of the crop, at the scale that leaves enough pixels, and
// drops them.
class Ceiling {
 public:
  Ceiling() {
    cinfo_.err = errors_.Install();
    jpeg_create_decompress(&cinfo_);
  }
  ~Ceiling() { jpeg_destroy_decompress(&cinfo_); }
  Ceiling(const Ceiling&) = delete;
  Ceiling& operator=(const Ceiling&) = delete;

  bool Decode(const Bytes& file, Random random, bool fast) {
    return errors_.Guard([&, fast] {
      jpeg_mem_src(&cinfo_, file.data(), file.size());
      jpeg_read_header(&cinfo_, TRUE);
      cinfo_.out_color_space = JCS_EXT_RGBX;
      const Crop crop = RandomCrop(static_cast<int>(cinfo_.image_width),
                                   static_cast<int>(cinfo_.image_height), kMinScale, random);
      unsigned scale = 8;
      while (fast && scale > 1 && std::min(crop.width, crop.height) * scale / 2 >= kCropSize * 8) scale /= 2;
      cinfo_.scale_num = scale;
      cinfo_.scale_denom = 8;
      jpeg_start_decompress(&cinfo_);
      const auto scaled = [&](int x) { return static_cast<JDIMENSION>(x) * scale / 8; };
      JDIMENSION left = scaled(crop.left);
      JDIMENSION width = std::max(scaled(crop.width), 1U);
      jpeg_crop_scanline(&cinfo_, &left, &width);
      if (crop.top > 0) jpeg_skip_scanlines(&cinfo_, scaled(crop.top));
      uint8_t* row = row_;
      for (JDIMENSION y = 0; y < scaled(crop.height); ++y) jpeg_read_scanlines(&cinfo_, &row, 1);
      jpeg_abort_decompress(&cinfo_);
    });
  }

 private:
  JpegErrors errors_{/*strict=*/false};
  jpeg_decompress_struct cinfo_{};
  uint8_t row_[size_t{JPEG_MAX_DIMENSION} * 4];
};

struct Spent {
  double wall = 0;  ///< seconds
  double cpu = 0;   ///< seconds of all threads: less disturbed by other programs
};

double ThreadCpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Each thread makes itself a worker, and calls it for one image after the other.
template <typename MakeWorker>
Spent Time(int threads, size_t images, MakeWorker make_worker) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Spent spent;
  const auto start = Clock::now();
  {
    std::vector<std::jthread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&] {
        auto worker = make_worker();
        const double begin = ThreadCpuSeconds();
        for (size_t i = next++; i < images; i = next++) worker(i);
        const std::lock_guard lock(mutex);
        spent.cpu += ThreadCpuSeconds() - begin;
      });
    }
  }
  spent.wall = std::chrono::duration<double>(Clock::now() - start).count();
  return spent;
}

double Median(const std::vector<Spent>& passes, double Spent::*what) {
  std::vector<double> values;
  for (const auto& pass : passes) values.push_back(pass.*what);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Images {
  std::vector<Bytes> plain;
  std::vector<RestartMarked> indexed;
};

Result<Images> Load(const std::string& where) {
  IMGD_ASSIGN(const auto set, OpenDataset(where));
  Images images;
  FileBuffer buffer;
  for (size_t i = 0; i < set->size(); ++i) {
    IMGD_TRY(set->Read(i, buffer));
    images.plain.emplace_back(buffer.bytes().begin(), buffer.bytes().end());
    IMGD_ASSIGN(auto marked, AddRestartMarkers(buffer.bytes()));
    images.indexed.push_back(std::move(marked));
  }
  return images;
}

class Bench {
 public:
  Bench(Images images, int threads, bool fast)
      : images_(std::move(images)), threads_(threads), mode_(fast ? DecodeMode::kFast : DecodeMode::kExact) {}

  void Pass() {
    plain_.push_back(Crops([this](size_t i) { return std::span<const uint8_t>(images_.plain[i]); },
                           [](size_t) { return RestartIndex(); }));
    const auto marked = [this](size_t i) { return AsBytes(images_.indexed[i].file); };
    indexed_.push_back(Crops(marked, [this](size_t i) { return AsBytes(images_.indexed[i].index); }));
    found_.push_back(Crops(marked, [](size_t) { return RestartIndex(kFindRestarts); }));
    ceiling_.push_back(Time(threads_, images_.plain.size(), [this] {
      return [this, decoder = std::make_unique<Ceiling>()](size_t i) {
        if (!decoder->Decode(images_.plain[i], RandomOf(i), mode_ == DecodeMode::kFast)) ++bad_;
      };
    }));
    ++pass_;
  }

  void Print() const {
    size_t before = 0, after = 0;
    for (const auto& file : images_.plain) before += file.size();
    for (const auto& file : images_.indexed) after += file.file.size();
    fmt::print("{{\"mode\": \"{}\", \"threads\": {}, \"passes\": {}, \"images\": {}, \"bad\": {}, ",
               mode_ == DecodeMode::kFast ? "fast" : "exact", threads_, pass_, images_.plain.size(),
               bad_.load());
    fmt::print("\"bytes\": {}, \"indexed_bytes\": {},\n \"cases\": [\n", before, after);
    Print("imgd-plain", plain_, ",");
    Print("imgd-indexed", indexed_, ",");
    Print("imgd-markers-found", found_, ",");
    Print("ceiling", ceiling_, "]}");
  }

 private:
  Random RandomOf(size_t image) const {
    return Random(kSeed, pass_, static_cast<uint32_t>(image), Purpose::kCrop);
  }

  template <typename File, typename Index>
  Spent Crops(File file, Index index) {
    return Time(threads_, images_.plain.size(), [&] {
      return [&, reader = std::make_unique<SampleReader>(),
              out = Bytes(size_t{kCropSize} * kCropSize * 3)](size_t i) mutable {
        const SampleReader::TrainingView view{kMinScale, true, RandomOf(i), mode_, index(i)};
        if (!reader->ReadForTraining(file(i), view, kCropSize, out.data())) ++bad_;
      };
    });
  }

  void Print(const char* name, const std::vector<Spent>& passes, const char* after) const {
    const double wall = Median(passes, &Spent::wall);
    const double cpu = Median(passes, &Spent::cpu);
    fmt::print("  {{\"case\": \"{}\", \"images_per_second\": {:.1f}, \"seconds\": {:.4f}, ", name,
               static_cast<double>(images_.plain.size()) / wall, wall);
    fmt::print("\"cpu_seconds\": {:.4f}, \"cpu_times_ceiling\": {:.3f}}}{}\n", cpu,
               Median(ceiling_, &Spent::cpu) / cpu, after);
  }

  const Images images_;
  const int threads_;
  const DecodeMode mode_;
  uint32_t pass_ = 0;
  std::atomic<size_t> bad_ = 0;
  std::vector<Spent> plain_, indexed_, found_, ceiling_;
};

Status Run(const std::string& where, int threads, int passes, bool fast) {
  IMGD_ASSIGN(Images images, Load(where));
  Bench bench(std::move(images), threads, fast);
  for (int i = 0; i < passes; ++i) bench.Pass();
  bench.Print();
  return {};
}

}  // namespace
}  // namespace imgd::data

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int threads = number(2, 2);
  const int passes = number(3, 3);
  const std::string_view mode = argc > 4 ? argv[4] : "fast";
  if (argc < 2 || threads < 1 || passes < 1 || (mode != "fast" && mode != "exact")) {
    std::fprintf(stderr, "usage: data_bench SET [THREADS [PASSES [fast|exact]]]\n");
    return 2;
  }
  const auto status = imgd::data::Run(argv[1], threads, passes, mode == "fast");
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
