#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace imgd::data {

/// SHA-256 of a text, as 32 bytes and as 64 hexadecimal digits.
std::string Sha256(std::string_view text);
std::string Sha256Hex(std::string_view text);
std::string HmacSha256(std::string_view key, std::string_view text);
std::string Hex(std::string_view bytes);

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
