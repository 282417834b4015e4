// Measures the decoding of training crops by itself, beside what libjpeg-turbo alone could do; one line of
// JSON. The images are read into memory first. Case by case in each pass, so that all meet the same
// disturbances.
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
#include "trainer/data/sample.h"

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
};

Result<Images> Load(const std::string& where) {
  IMGD_ASSIGN(const auto set, OpenDataset(where));
  Images images;
  FileBuffer buffer;
  for (size_t i = 0; i < set->size(); ++i) {
    IMGD_TRY(set->Read(i, buffer));
    images.plain.emplace_back(buffer.bytes().begin(), buffer.bytes().end());
  }
  return images;
}

Status Run(const std::string& where, int threads, int passes, bool fast) {
  IMGD_ASSIGN(const Images images, Load(where));
  const size_t n = images.plain.size();
  std::vector<Spent> plain, ceiling;
  std::atomic<size_t> bad = 0;
  const auto random = [](int pass, size_t i) {
    return Random(kSeed, static_cast<uint32_t>(pass), static_cast<uint32_t>(i), Purpose::kCrop);
  };
  for (int pass = 0; pass < passes; ++pass) {
    plain.push_back(Time(threads, n, [&] {
      return [&, reader = std::make_unique<SampleReader>(),
              out = Bytes(kCropSize * kCropSize * 3)](size_t i) mutable {
        if (!reader->ReadForTraining(
                images.plain[i],
                {kMinScale, true, random(pass, i), fast ? DecodeMode::kFast : DecodeMode::kExact}, kCropSize,
                out.data()))
          ++bad;
      };
    }));
    ceiling.push_back(Time(threads, n, [&] {
      return [&, decoder = std::make_unique<Ceiling>()](size_t i) {
        if (!decoder->Decode(images.plain[i], random(pass, i), fast)) ++bad;
      };
    }));
  }
  const double limit = Median(ceiling, &Spent::cpu);
  const auto row = [&](const char* name, const std::vector<Spent>& passes) {
    const double wall = Median(passes, &Spent::wall);
    const double cpu = Median(passes, &Spent::cpu);
    fmt::print(
        "{{\"case\": \"{}\", \"images\": {}, \"seconds\": {:.4f}, \"images_per_second\": {:.1f}, "
        "\"cpu_seconds\": "
        "{:.4f}, \"cpu_of_ceiling\": {:.3f}}}\n",
        name, n, wall, static_cast<double>(n) / wall, cpu, limit / cpu);
  };
  row("plain", plain);
  row("ceiling", ceiling);
  fmt::print("bad {}\n", bad.load());
  return {};
}

}  // namespace
}  // namespace imgd::data

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  if (argc < 2) {
    std::fprintf(stderr, "usage: data_bench SET [THREADS [PASSES [fast|exact]]]\n");
    return 2;
  }
  const auto status =
      imgd::data::Run(argv[1], number(2, 2), number(3, 3), argc <= 4 || std::string_view(argv[4]) == "fast");
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
