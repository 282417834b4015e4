// MATLAB files (meta.mat), as they come and with their variables packed; a mutation would hardly ever hit
// good zlib data.
#include "trainer/data/matlab.h"

#include <zlib.h>

#include "tests/fuzz/memory_source.h"

using namespace imgd::data;

namespace {

constexpr size_t kHeadBytes = 128;

void Check(const MatArray& array) {
  using enum MatArray::Kind;
  if (array.dimensions.empty()) {  // an empty cell
    Require(array.numbers.empty() && array.items.empty());
    return;
  }
  if (array.kind == kNumbers) Require(array.numbers.size() == array.count());
  if (array.kind == kCells) Require(array.items.size() == array.count());
  if (array.kind == kStructs) Require(array.items.size() == array.count() * array.fields.size());
  for (const auto& item : array.items) Check(item);
}

void Read(const std::string& bytes) {
  const auto variables = ReadMatFile(bytes, "x.mat");
  if (!variables) return;
  for (const auto& variable : *variables) Check(variable);
}

std::string Packed(std::string_view element) {
  uLongf size = compressBound(element.size());
  std::string out(8 + size, '\0');
  auto* to = reinterpret_cast<Bytef*>(out.data()) + 8;
  Require(compress2(to, &size, AsBytes(element).data(), element.size(), Z_BEST_SPEED) == Z_OK);
  const uint32_t tag[2] = {15, static_cast<uint32_t>(size)};
  std::memcpy(out.data(), tag, sizeof tag);
  out.resize(8 + size);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  if (size > kHeadBytes)
    Read(bytes.substr(0, kHeadBytes) + Packed(std::string_view(bytes).substr(kHeadBytes)));
  return 0;
}
