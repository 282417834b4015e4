#pragma once

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/data/shard_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// The bytes of a fuzzer's input, as a file that is read.
class MemorySource final : public Source {
 public:
  MemorySource(const std::string& name, std::span<const uint8_t> bytes)
      : Source(name, bytes.size(), ""), bytes_(bytes) {}

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset > size() || out.size() > size() - offset) {
      return Fail(ErrorCode::kDataLoss, "{} ends at byte {}", name(), size());
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::span<const uint8_t> bytes_;
};

/// What every reader owes: says so by a crash when it does not hold.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

/// Each image that a reader found can be read: where it says, within the shard.
inline void RequireReadable(const Source& shard, const ShardIndex& index) {
  Require(index.shard_bytes == shard.size());
  for (const auto& image : index.images) {
    Require(image.label >= 0);
    if (image.skip != 0) continue;
    std::vector<uint8_t> bytes(image.size);
    Require(shard.ReadAt(image.offset, bytes).has_value());
  }
}

}  // namespace imgd::data
