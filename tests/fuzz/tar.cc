// Tar archives: of samples (WebDataset) and of tars (ImageNet's own), as they come and with right checksums.
#include "trainer/data/tar.h"

#include <algorithm>
#include <cstring>

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

namespace {

/// Every block gets the checksum that it should have as a header; a mutation would hardly ever hit one.
std::vector<uint8_t> Mended(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> out(bytes.begin(), bytes.end());
  for (size_t at = 0; at + 512 <= out.size(); at += 512) {
    const auto block = std::span(out).subspan(at, 512);
    if (std::ranges::all_of(block, [](uint8_t b) { return b == 0; })) continue;
    std::fill_n(block.begin() + 148, 8, uint8_t{' '});
    unsigned sum = 0;
    for (const uint8_t b : block) sum += b;
    std::memcpy(&block[148], fmt::format("{:06o}", sum).c_str(), 7);
  }
  return out;
}

void Read(std::span<const uint8_t> bytes) {
  const MemorySource source("x.tar", bytes);
  TarReader tar(source);
  for (;;) {
    const auto entry = tar.Next();
    if (!entry || !*entry) break;
    Require((*entry)->offset <= source.size() && (*entry)->size <= source.size() - (*entry)->offset);
  }
  if (const auto index = ScanShard(source)) RequireReadable(source, *index);
  if (const auto index = ScanTarOfTars(source)) RequireReadable(source, *index);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Read({data, size});
  Read(Mended({data, size}));
  return 0;
}
