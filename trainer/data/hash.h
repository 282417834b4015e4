#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace imgd::data {

/// A digest that is fed piece by piece.
class Digest {
 public:
  enum class Kind { kMd5, kSha256 };
  explicit Digest(Kind kind);
  ~Digest();
  void Add(std::span<const uint8_t> bytes);
  /// In hexadecimal digits; once.
  std::string Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::data
