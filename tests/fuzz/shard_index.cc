// The index beside a shard, as it comes and with the right checksum.
#include "tests/fuzz/memory_source.h"
#include "trainer/data/crc32c.h"

using namespace imgd::data;

namespace {

void Read(const std::string& bytes) {
  const auto index = DecodeShardIndex(bytes, "x.idx");
  if (!index) return;
  for (const auto& image : index->images) {
    Require(image.offset <= index->shard_bytes && image.size <= index->shard_bytes - image.offset);
  }
  const auto again = DecodeShardIndex(EncodeShardIndex(*index), "again");
  Require(again && *again == *index);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  constexpr size_t kHead = 12;  // magic and checksum
  if (size < kHead) return 0;
  const uint32_t crc = Crc32c({data + kHead, size - kHead});
  std::memcpy(&bytes[8], &crc, 4);
  Read(bytes);
  return 0;
}
