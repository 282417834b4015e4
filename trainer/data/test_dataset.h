#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/test_images.h"

namespace imgd::data {

/// Images in memory that counts how often each is read. Each has a colour of its own.
class CountingDataset final : public Dataset {
 public:
  /// With `shards`, as if they were kept in them.
  explicit CountingDataset(uint32_t images, std::vector<uint32_t> shards = {})
      : shards_(std::move(shards)), reads_(images) {
    labels_.resize(images);
    classes_ = {"a", "b"};
    for (uint32_t i = 0; i < images; ++i) {
      labels_[i] = static_cast<int32_t>(i % 2);
      std::vector<uint8_t> pixels;
      for (int p = 0; p < 24 * 16; ++p) {
        const auto level = static_cast<uint8_t>(p * 7 % 64);
        pixels.insert(pixels.end(),
                      {static_cast<uint8_t>(i % 192 + level), level, static_cast<uint8_t>(i / 3)});
      }
      files_.push_back(EncodeJpeg(pixels, 24, 16, {}).value());
    }
  }

  std::string name(size_t i) const override { return std::to_string(i); }
  std::string place(size_t i) const override { return name(i); }
  const std::vector<uint32_t>& shard_sizes() const override { return shards_; }
  Result<uint64_t> FileBytes(size_t i) const override { return files_[i].size(); }
  Status Read(size_t i, FileBuffer& out) const override {
    ++reads_[i];
    if (away_) return Fail(ErrorCode::kUnavailable, "no server answers");
    std::copy(files_[i].begin(), files_[i].end(), out.Take(files_[i].size()).begin());
    return {};
  }

  /// From here on nothing can be read.
  void GoAway() { away_ = true; }
  void Spoil(size_t i) { files_[i] = "spoilt"; }

  /// Since the last call.
  std::vector<int> TakeReads() {
    std::vector<int> out;
    for (auto& reads : reads_) out.push_back(reads.exchange(0));
    return out;
  }

 private:
  std::vector<std::string> files_;
  std::vector<uint32_t> shards_;
  std::atomic<bool> away_ = false;
  mutable std::vector<std::atomic<int>> reads_;
};

}  // namespace imgd::data
