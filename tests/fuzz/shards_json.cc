// The description of a set of shards.
#include "tests/fuzz/memory_source.h"
#include "trainer/data/shard_set.h"

using namespace imgd::data;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto set = SetDescription::Parse({reinterpret_cast<const char*>(data), size}, "shards.json");
  if (!set) return 0;
  for (const auto& shard : set->shards) Require(shard.name.find('/') == std::string::npos);
  const std::string json = set->ToJson();
  const auto again = SetDescription::Parse(json, "again");
  Require(again && again->ToJson() == json);
  return 0;
}
