// JPEG files: crops that the input's last bytes choose, decoded as they are and with restart indexes, right
// and wrong ones; and that marking a file for restarts changes no pixel.
#include "trainer/data/jpeg.h"

#include <fuzzer/FuzzedDataProvider.h>

#include "tests/fuzz/memory_source.h"
#include "trainer/data/restart_index.h"

using namespace imgd::data;

namespace {

/// Larger pictures only cost time.
constexpr int64_t kMostPixels = 1 << 18;

struct Wanted {
  Box share;  ///< of the image's sides
  int least = 1;
};

/// The crop's pixels; empty where the file can't be decoded. `more` are Open()'s other arguments.
template <typename... More>
std::vector<uint8_t> Decode(JpegDecoder& decoder, std::span<const uint8_t> file, const Wanted& wanted,
                            const More&... more) {
  const auto size = decoder.Open(file, more...);
  if (!size) return {};
  Require(size->width > 0 && size->height > 0);
  if (int64_t{size->width} * size->height > kMostPixels) return {};
  const Box box = {wanted.share.left * size->width, wanted.share.top * size->height,
                   wanted.share.width * size->width, wanted.share.height * size->height};
  const auto part = decoder.Decode(box, 1, wanted.least, wanted.least);
  if (!part) return {};
  Require(part->pixels.width > 0 && part->pixels.height > 0);
  std::vector<uint8_t> pixels;
  for (int y = 0; y < part->pixels.height; ++y) {
    for (int x = 0; x < part->pixels.width * 4; ++x) {
      if (x % 4 != 3) pixels.push_back(part->pixels.row(y)[x]);  // the fourth byte is nobody's
    }
  }
  return pixels;
}

/// `index` with some of its bytes changed, as `noise` says: a place and what to add there, in turn.
std::string Changed(std::string index, const std::string& noise) {
  for (size_t i = 0; i + 1 < noise.size() && !index.empty(); i += 2) {
    char& byte = index[static_cast<uint8_t>(noise[i]) % index.size()];
    byte = static_cast<char>(byte + noise[i + 1]);
  }
  return index;
}

void DecodeWithRestarts(std::span<const uint8_t> file, const Wanted& wanted, const std::string& noise) {
  JpegDecoder decoder;
  Decode(decoder, file, wanted, RestartIndex(kFindRestarts));
  Decode(decoder, file, wanted, AsBytes(noise));
  const auto plain = Decode(decoder, file, wanted);
  if (plain.empty()) return;
  const auto marked = AddRestartMarkers(file);
  if (!marked || !marked->changed) return;
  Require(Decode(decoder, AsBytes(marked->file), wanted) == plain);
  // With its own index, and with those of a liar, which are either as good or not used.
  const std::string cut = marked->index.substr(0, marked->index.size() / 2);
  for (const auto& index :
       {marked->index, Changed(marked->index, noise), noise, marked->index + noise, cut}) {
    Require(Decode(decoder, AsBytes(marked->file), wanted, AsBytes(index)) == plain);
  }
  Decode(decoder, file, wanted, AsBytes(marked->index));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  Wanted wanted;
  wanted.share.left = input.ConsumeIntegralInRange<int>(0, 99) / 100.0;
  wanted.share.top = input.ConsumeIntegralInRange<int>(0, 99) / 100.0;
  wanted.share.width = input.ConsumeIntegralInRange<int>(1, 100) / 100.0 * (1 - wanted.share.left);
  wanted.share.height = input.ConsumeIntegralInRange<int>(1, 100) / 100.0 * (1 - wanted.share.top);
  wanted.least = input.ConsumeIntegralInRange<int>(1, 64);
  const auto noise_size = static_cast<int>(input.ConsumeIntegralInRange<uint8_t>(0, 8));
  std::string noise;
  for (int i = 0; i < noise_size; ++i) noise.push_back(input.ConsumeIntegral<char>());
  const auto file = input.ConsumeRemainingBytes<uint8_t>();
  JpegDecoder decoder;
  Decode(decoder, file, wanted);
  Decode(decoder, file, {{0, 0, 1, 1}, 1});
  DecodeWithRestarts(file, wanted, noise);
  return 0;
}
