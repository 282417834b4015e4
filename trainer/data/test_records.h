#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/crc32c.h"
#include "trainer/data/source.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
inline std::string Bytes(int field, const std::string& content) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(content.size()) + content;
}
inline std::string Feature(const std::string& key, const std::string& feature) {
  return Bytes(1, Bytes(1, key) + Bytes(2, feature));
}

/// A record of ImageNet's schema as TensorFlow writes it.
inline std::string Example(const std::string& image, int label, const std::string& synset = "",
                           bool packed = true) {
  const std::string number = packed ? Bytes(1, Varint(static_cast<uint64_t>(label)))
                                    : Varint(8) + Varint(static_cast<uint64_t>(label));
  std::string features = Feature("image/height", Bytes(3, Bytes(1, Varint(375)))) +
                         Feature("image/encoded", Bytes(1, Bytes(1, image))) +
                         Feature("image/class/label", Bytes(3, number)) +
                         Feature("image/filename", Bytes(1, Bytes(1, fmt::format("x/n{}.JPEG", label)))) +
                         Feature("image/object/bbox/xmin", Bytes(2, Bytes(1, std::string(8, '?'))));
  if (!synset.empty()) features += Feature("image/class/synset", Bytes(1, Bytes(1, synset)));
  return Bytes(1, features);
}

inline std::string TfRecord(const std::string& content) {
  const std::string length = Raw(uint64_t{content.size()});
  return length + Raw(MaskedCrc(Crc32c(AsBytes(length)))) + content +
         Raw(MaskedCrc(Crc32c(AsBytes(content))));
}

inline std::string RecordIo(const std::string& content, uint32_t kind = 0) {
  std::string out = Raw(0xCED7230AU) + Raw(kind << 29 | static_cast<uint32_t>(content.size())) + content;
  out.resize((out.size() + 3) / 4 * 4);
  return out;
}
inline std::string ImageRecord(float label, uint64_t id, const std::string& image,
                               std::vector<float> labels = {}) {
  std::string out = Raw(static_cast<uint32_t>(labels.size())) + Raw(label) + Raw(id) + Raw(uint64_t{0});
  for (const float l : labels) out += Raw(l);
  return out + image;
}

}  // namespace imgd::data
