#include "server/store/history_codec.h"

#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

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

struct Release {
  void operator()(libdeflate_compressor* one) const { ::libdeflate_free_compressor(one); }
  void operator()(libdeflate_decompressor* one) const { ::libdeflate_free_decompressor(one); }
};

std::string Deflate(const std::string& plain) {
  constexpr int kQuickest = 1;
  thread_local const std::unique_ptr<libdeflate_compressor, Release> compressor(
      ::libdeflate_alloc_compressor(kQuickest));
  if (!compressor) throw std::bad_alloc();
  std::string out(::libdeflate_zlib_compress_bound(compressor.get(), plain.size()), '\0');
  out.resize(
      ::libdeflate_zlib_compress(compressor.get(), plain.data(), plain.size(), out.data(), out.size()));
  return out;
}

/// Puts what was deflated into `out`; how many bytes it is, nothing where they are more or not what was
/// deflated.
std::optional<size_t> Inflate(std::string_view data, std::span<char> out) {
  thread_local const std::unique_ptr<libdeflate_decompressor, Release> decompressor(
      ::libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  size_t size = 0;
  const auto result = ::libdeflate_zlib_decompress(decompressor.get(), data.data(), data.size(), out.data(),
                                                   out.size(), &size);
  return result == LIBDEFLATE_SUCCESS ? std::optional(size) : std::nullopt;
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
std::vector<double> FromPlanes(std::span<const char> planes) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  const size_t count = planes.size() / sizeof(T);
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) {
    Bits bits = 0;
    for (size_t b = 0; b < sizeof(T); ++b)
      bits |= static_cast<Bits>(static_cast<uint8_t>(planes[b * count + i])) << (8 * b);
    out[i] = static_cast<double>(std::bit_cast<T>(bits));
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

std::optional<std::vector<double>> FromDifferences(std::span<const char> bytes, size_t count) {
  std::vector<double> out;
  out.reserve(count);
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
  const auto memory = std::make_unique_for_overwrite<char[]>(count * size);
  const auto filled = Inflate(data, {memory.get(), count * size});
  if (!filled) return broken;
  const std::span<const char> plain(memory.get(), *filled);
  if (form == kWhole) {
    auto values = FromDifferences(plain, count);
    if (!values) return broken;
    return std::move(*values);
  }
  if (plain.size() != count * size || (form != kFloats && form != kDoubles)) return broken;
  return form == kFloats ? FromPlanes<float>(plain) : FromPlanes<double>(plain);
}

}  // namespace imgd
