// What a download that was broken off notes of its parts, and lists of checksums.
#include "trainer/data/fetch.h"

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

namespace {

void ReadParts(std::string_view lines, size_t chunks) {
  const auto there = ChunksNoted(lines, chunks);
  Require(there.size() == chunks);
  std::string noted;
  for (size_t i = 0; i < chunks; ++i) {
    if (there[i]) noted += fmt::format("{}\n", i);
  }
  Require(ChunksNoted(noted, chunks) == there);
  // What a crash has torn never notes a chunk that the whole does not.
  const auto torn = ChunksNoted(lines.substr(0, lines.size() / 2), chunks);
  for (size_t i = 0; i < chunks; ++i) Require(!torn[i] || there[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const size_t chunks : {0, 1, 12, 3000}) ReadParts(text, chunks);
  if (const auto sums = ParseChecksums(text, "SUMS")) {
    for (const auto& [name, digits] : *sums) Require(digits.size() == 32 || digits.size() == 64);
  }
  return 0;
}
