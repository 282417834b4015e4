#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/data/jpeg_encode.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// A folder of the test's own, gone with it.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> counter = 0;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_data_{}_{}", ::getpid(), counter++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path Write(const std::string& name, const std::string& content) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// Smooth waves with an edge or two, a different picture for each seed: [height, width, components].
inline std::vector<uint8_t> Waves(int width, int height, int components, int seed = 0) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < components; ++c) {
        const double wave = std::sin(x * 0.11 + seed) + std::cos(y * 0.07 * (c + 1) + seed * 0.5);
        const double edge = (x / 24 + y / 40 + c) % 3 == 0 ? 20 : -20;
        pixels.push_back(static_cast<uint8_t>(128 + 50 * wave + edge));
      }
    }
  }
  return pixels;
}

/// The pixels (R, G, B) as a YCCK file: what an Adobe program makes of CMYK, inverted, where black is `black`
/// everywhere (255: none). By JFIF's own formula, without libjpeg's.
inline std::string YcckJpeg(const std::vector<uint8_t>& rgb, int width, int height, uint8_t black = 255) {
  std::vector<uint8_t> ycck;
  const auto put = [&](double value) {
    ycck.push_back(static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L)));
  };
  for (size_t i = 0; i < rgb.size(); i += 3) {
    const double r = 255 - rgb[i];  // what is kept is C, M and Y as if they were the complements
    const double g = 255 - rgb[i + 1];
    const double b = 255 - rgb[i + 2];
    put(0.299 * r + 0.587 * g + 0.114 * b);
    put(128 - 0.168736 * r - 0.331264 * g + 0.5 * b);
    put(128 + 0.5 * r - 0.418688 * g - 0.081312 * b);
    ycck.push_back(black);
  }
  std::string file = EncodeJpeg(ycck, width, height, {.quality = 97, .components = 4}).value();
  file[file.find("Adobe") + 11] = 2;  // its transform: the four planes are YCCK
  return file;
}

inline std::string WavesJpeg(int width, int height, const JpegEncodeOptions& options = {}, int seed = 0) {
  return EncodeJpeg(Waves(width, height, options.components, seed), width, height, options).value();
}

}  // namespace imgd::data
