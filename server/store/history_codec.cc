#include "server/store/history_codec.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace imgd {
namespace {

static_assert(std::endian::native == std::endian::little);

enum Form : char { kSame = 0, kWhole = 1, kFloats = 2, kDoubles = 3 };

constexpr double kMostWhole = 9007199254740992.0;  // 2^53
constexpr size_t kMostVarintBytes = 10;

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool IsWhole(double value) {
  return std::abs(value) < kMostWhole && std::trunc(value) == value && !SameBits(value, -0.0);
}

bool IsFloat(double value) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) return false;
  return SameBits(static_cast<double>(static_cast<float>(value)), value);
}

std::string Deflate(const std::string& plain) {
  uLongf size = ::compressBound(static_cast<uLong>(plain.size()));
  std::string out(size, '\0');
  ::compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
              static_cast<uLong>(plain.size()), Z_BEST_SPEED);
  out.resize(size);
  return out;
}

/// What was deflated, of at most `most` bytes.
std::optional<std::string> Inflate(std::string_view data, size_t most) {
  std::string out(most, '\0');
  uLongf size = static_cast<uLongf>(most);
  if (::uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
                   static_cast<uLong>(data.size())) != Z_OK) {
    return std::nullopt;
  }
  out.resize(size);
  return out;
}

/// Of n numbers of s bytes each: their first bytes, then their second ones, and so on, which are alike.
template <typename T>
std::string Planes(std::span<const double> values) {
  std::string out(values.size() * sizeof(T), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    for (size_t b = 0; b < sizeof(T); ++b) out[b * values.size() + i] = bytes[b];
  }
  return out;
}

template <typename T>
std::vector<double> FromPlanes(const std::string& planes, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) {
    char bytes[sizeof(T)];
    for (size_t b = 0; b < sizeof(T); ++b) bytes[b] = planes[b * count + i];
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    out[i] = static_cast<double>(value);
  }
  return out;
}

/// Differences wrap, so that any numbers will do.
std::string Differences(std::span<const double> values) {
  std::string out;
  uint64_t before = 0;
  uint64_t step = 0;
  for (const double value : values) {
    const auto now = static_cast<uint64_t>(static_cast<int64_t>(value));
    const auto change = static_cast<int64_t>(now - before - step);
    step = now - before;
    before = now;
    uint64_t zigzag = (static_cast<uint64_t>(change) << 1) ^ static_cast<uint64_t>(change >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) out += static_cast<char>(zigzag | 0x80);
    out += static_cast<char>(zigzag);
  }
  return out;
}

std::optional<std::vector<double>> FromDifferences(const std::string& bytes, size_t count) {
  std::vector<double> out;
  uint64_t before = 0;
  uint64_t step = 0;
  size_t at = 0;
  while (out.size() < count) {
    uint64_t zigzag = 0;
    for (int shift = 0;; shift += 7) {
      if (at == bytes.size() || shift > 63) return std::nullopt;
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      zigzag |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    step += (zigzag >> 1) ^ (~(zigzag & 1) + 1);
    before += step;
    out.push_back(static_cast<double>(static_cast<int64_t>(before)));
  }
  if (at != bytes.size()) return std::nullopt;
  return out;
}

}  // namespace

std::string EncodeColumn(std::span<const double> values) {
  if (values.empty()) return {};
  const auto all = [&values](auto is) { return std::all_of(values.begin(), values.end(), is); };
  if (all([&values](double value) { return SameBits(value, values.front()); })) {
    std::string out(1 + sizeof(double), kSame);
    std::memcpy(out.data() + 1, values.data(), sizeof(double));
    return out;
  }
  if (all(IsWhole)) return static_cast<char>(kWhole) + Deflate(Differences(values));
  if (all(IsFloat)) return static_cast<char>(kFloats) + Deflate(Planes<float>(values));
  return static_cast<char>(kDoubles) + Deflate(Planes<double>(values));
}

Result<std::vector<double>> DecodeColumn(std::string_view data, size_t count) {
  const auto broken = Fail(ErrorCode::kDataLoss, "metrics.db: a column of figures is damaged");
  if (count == 0 && data.empty()) return std::vector<double>();
  if (data.empty()) return broken;
  const char form = data.front();
  data.remove_prefix(1);
  if (form == kSame) {
    if (data.size() != sizeof(double)) return broken;
    double value = 0;
    std::memcpy(&value, data.data(), sizeof(double));
    return std::vector<double>(count, value);
  }
  const size_t size = form == kFloats ? sizeof(float) : form == kDoubles ? sizeof(double) : kMostVarintBytes;
  const auto plain = Inflate(data, count * size);
  if (!plain) return broken;
  if (form == kWhole) {
    auto values = FromDifferences(*plain, count);
    if (!values) return broken;
    return std::move(*values);
  }
  if (plain->size() != count * size || (form != kFloats && form != kDoubles)) return broken;
  return form == kFloats ? FromPlanes<float>(*plain, count) : FromPlanes<double>(*plain, count);
}

}  // namespace imgd
