// TFRecord files, as they come and with the right checksums of their lengths.
#include "trainer/data/tfrecord.h"

#include "tests/fuzz/memory_source.h"
#include "trainer/data/crc32c.h"

using namespace imgd::data;

namespace {

void Read(std::span<const uint8_t> bytes) {
  const MemorySource source("x.tfrecord", bytes);
  if (const auto index = ScanShard(source)) RequireReadable(source, *index);
}

std::vector<uint8_t> Mended(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> out(bytes.begin(), bytes.end());
  for (uint64_t at = 0; out.size() - at >= 16;) {
    const uint32_t crc = MaskedCrc(Crc32c(std::span(out).subspan(at, 8)));
    std::memcpy(&out[at + 8], &crc, 4);
    uint64_t length = 0;
    std::memcpy(&length, &out[at], 8);
    if (length > out.size() - at - 16) break;
    at += 16 + length;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Read({data, size});
  Read(Mended({data, size}));
  return 0;
}
