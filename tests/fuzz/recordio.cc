// RecordIO files, and reading what the index says of them.
#include "trainer/data/recordio.h"

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemorySource source("x.rec", {data, size});
  const auto index = ScanShard(source);
  if (!index) return 0;
  RequireReadable(source, *index);
  for (const auto& image : index->images) {
    if (image.skip == 0) continue;
    const auto record = ReadRecord(source, image.offset, uint64_t{image.skip} + image.size);
    Require(record && record->size() == uint64_t{image.skip} + image.size);
  }
  return 0;
}
