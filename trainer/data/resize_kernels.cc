#include "trainer/data/resize_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace imgd::data {
namespace {

constexpr int kLineShift = 7;
constexpr int kResultShift = 21;

int16_t Low(int32_t pair) { return static_cast<int16_t>(pair & 0xFFFF); }
int16_t High(int32_t pair) { return static_cast<int16_t>(pair >> 16); }

int32_t PairOf(const int16_t* weights) {
  int32_t pair;
  std::memcpy(&pair, weights, sizeof pair);
  return pair;
}

void BlendSome(const uint8_t* first_row, size_t pitch, int rows, const int16_t* weights, size_t begin,
               size_t end, int16_t* line) {
  for (size_t i = begin; i < end; ++i) {
    int32_t sum = 1 << (kLineShift - 1);
    for (int k = 0; k < rows; ++k) sum += weights[k] * first_row[static_cast<size_t>(k) * pitch + i];
    line[i] = static_cast<int16_t>(sum >> kLineShift);
  }
}

void FinishPortably(const int16_t* line, const int* from, const int32_t* weights, int pairs, int width,
                    uint8_t* out) {
  constexpr std::array<int, 4> kPlace = {0, 8, 4, 12};
  for (int x = 0; x < width; ++x) {
    const int16_t* pixel = line + static_cast<ptrdiff_t>(from[x]) * 4;
    const int32_t* pair =
        weights + static_cast<ptrdiff_t>(x / 4) * pairs * 16 + kPlace[static_cast<size_t>(x % 4)];
    std::array<int32_t, 3> sum;
    sum.fill(1 << (kResultShift - 1));
    for (int p = 0; p < pairs; ++p, pixel += 8, pair += 16) {
      for (size_t c = 0; c < 3; ++c) sum[c] += Low(*pair) * pixel[c] + High(*pair) * pixel[c + 4];
    }
    for (size_t c = 0; c < 3; ++c) *out++ = static_cast<uint8_t>(sum[c] >> kResultShift);
  }
}

#if defined(__x86_64__)

#define IMGD_AVX2 __attribute__((target("avx2")))

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

IMGD_AVX2 inline __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// 32 values, of which there must be so many.
IMGD_AVX2 inline void Blend32(const uint8_t* column, size_t pitch, int rows, const int16_t* weights,
                              int16_t* line) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i round = _mm256_set1_epi32(1 << (kLineShift - 1));
  __m256i sums[4] = {round, round, round, round};
  for (int k = 0; k < rows; k += 2, column += 2 * pitch) {
    const __m256i a = Load(column);
    const __m256i b = Load(k + 1 < rows ? column + pitch : column);
    const __m256i weight = _mm256_set1_epi32(PairOf(weights + k));
    const __m256i low = _mm256_unpacklo_epi8(a, b);
    const __m256i high = _mm256_unpackhi_epi8(a, b);
    const auto add = [&](int i, __m256i pairs)
                         IMGD_AVX2 { sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, weight)); };
    add(0, _mm256_unpacklo_epi8(low, zero));
    add(1, _mm256_unpackhi_epi8(low, zero));
    add(2, _mm256_unpacklo_epi8(high, zero));
    add(3, _mm256_unpackhi_epi8(high, zero));
  }
  for (auto& sum : sums) sum = _mm256_srai_epi32(sum, kLineShift);
  const __m256i low = _mm256_packs_epi32(sums[0], sums[1]);   // values 0-7 and 16-23
  const __m256i high = _mm256_packs_epi32(sums[2], sums[3]);  // values 8-15 and 24-31
  auto* to = reinterpret_cast<__m256i*>(line);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

IMGD_AVX2 void BlendWide(const uint8_t* first_row, size_t pitch, int rows, const int16_t* weights,
                         size_t bytes, int16_t* line) {
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32) Blend32(first_row + i, pitch, rows, weights, line + i);
  // The last ones once more together with some that are done.
  if (i < bytes) Blend32(first_row + bytes - 32, pitch, rows, weights, line + bytes - 32);
}

IMGD_AVX2 inline __m256i TwoPixels(const int16_t* left, const int16_t* right) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(left));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(right)), 1);
}

// Four pixels, as 16 bytes of which 12 count.
IMGD_AVX2 inline __m128i Finish4(const int16_t* line, const int* from, const int32_t* weights, int pairs) {
  const __m256i neighbours = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));  // channel by channel
  __m256i even = _mm256_set1_epi32(1 << (kResultShift - 1));                 // pixels 0 and 2
  __m256i odd = even;                                                        // 1 and 3
  const int16_t* pixel[4];
  for (int i = 0; i < 4; ++i) pixel[i] = line + static_cast<ptrdiff_t>(from[i]) * 4;
  for (int p = 0; p < pairs; ++p, weights += 16) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(p) * 8;
    const __m256i a = _mm256_shuffle_epi8(TwoPixels(pixel[0] + at, pixel[2] + at), neighbours);
    const __m256i b = _mm256_shuffle_epi8(TwoPixels(pixel[1] + at, pixel[3] + at), neighbours);
    even = _mm256_add_epi32(even, _mm256_madd_epi16(a, Load(weights)));
    odd = _mm256_add_epi32(odd, _mm256_madd_epi16(b, Load(weights + 8)));
  }
  const __m256i words =
      _mm256_packs_epi32(_mm256_srai_epi32(even, kResultShift), _mm256_srai_epi32(odd, kResultShift));
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
}

IMGD_AVX2 void FinishWide(const int16_t* line, const int* from, const int32_t* weights, int pairs, int width,
                          uint8_t* out) {
  int x = 0;
  // 16 bytes are stored, the last 4 of which the next ones overwrite; at the end there may be no room.
  for (; x + 6 <= width; x += 4, out += 12, weights += static_cast<ptrdiff_t>(pairs) * 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), Finish4(line, from + x, weights, pairs));
  }
  for (; x < width; x += 4, out += 12, weights += static_cast<ptrdiff_t>(pairs) * 16) {
    std::array<uint8_t, 16> last;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), Finish4(line, from + x, weights, pairs));
    std::copy_n(last.data(), std::min(width - x, 4) * 3, out);
  }
}

#endif

}  // namespace

void BlendRows(const uint8_t* first_row, size_t pitch, int rows, const int16_t* weights, size_t bytes,
               int16_t* line) {
#if defined(__x86_64__)
  if (HasAvx2() && bytes >= 32) return BlendWide(first_row, pitch, rows, weights, bytes, line);
#endif
  BlendSome(first_row, pitch, rows, weights, 0, bytes, line);
}

void FinishLine(const int16_t* line, const int* from, const int32_t* weights, int pairs, int width,
                uint8_t* out) {
#if defined(__x86_64__)
  if (HasAvx2()) return FinishWide(line, from, weights, pairs, width, out);
#endif
  FinishPortably(line, from, weights, pairs, width, out);
}

}  // namespace imgd::data
