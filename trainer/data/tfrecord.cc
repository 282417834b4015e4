#include "trainer/data/tfrecord.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/data/crc32c.h"

namespace imgd::data {
namespace {

constexpr uint64_t kHeaderBytes = 12;  ///< length and its checksum
constexpr uint64_t kFooterBytes = 4;   ///< checksum of the content
constexpr uint64_t kMostTextBytes = 4096;
constexpr uint64_t kWindowBytes = 1024;

/// A stretch of the file, [at, end).
struct Stretch {
  uint64_t at = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - at; }
};

/// Reads protobuf's wire format from a file in small pieces, so that long fields cost nothing.
class WireReader {
 public:
  explicit WireReader(const Source& source) : source_(source) {}

  /// Takes a field off the front; a field of bytes gives where they lie, others their value.
  struct Field {
    uint32_t number = 0;
    std::optional<Stretch> bytes;
    uint64_t value = 0;
  };
  std::optional<Field> Next(Stretch& rest) {
    const auto tag = Varint(rest);
    if (!tag) return std::nullopt;
    Field field{.number = static_cast<uint32_t>(*tag >> 3)};
    switch (*tag & 7) {
      case 0: {
        const auto value = Varint(rest);
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case 1:
        return Skip(rest, 8) ? std::optional(field) : std::nullopt;
      case 2: {
        const auto size = Varint(rest);
        if (!size || *size > rest.size()) return std::nullopt;
        field.bytes = Stretch{rest.at, rest.at + *size};
        rest.at += *size;
        return field;
      }
      case 5:
        return Skip(rest, 4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::optional<uint64_t> Varint(Stretch& rest) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = Byte(rest);
      if (!byte) return std::nullopt;
      value |= uint64_t{*byte & 0x7FU} << shift;
      if (*byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<std::string> Text(const Stretch& stretch) {
    if (stretch.size() > kMostTextBytes) return std::nullopt;
    auto text = ReadText(source_, stretch.at, stretch.size());
    if (text) return *text;
    error_ = text.error();
    return std::nullopt;
  }

  /// What the file system said, if that is why nothing was read.
  const std::optional<Error>& error() const { return error_; }

 private:
  static bool Skip(Stretch& rest, uint64_t n) {
    if (rest.size() < n) return false;
    rest.at += n;
    return true;
  }

  std::optional<uint8_t> Byte(Stretch& rest) {
    if (rest.at >= rest.end) return std::nullopt;
    if (rest.at < window_at_ || rest.at >= window_at_ + window_size_) {
      window_at_ = rest.at;
      window_size_ = std::min<uint64_t>(kWindowBytes, source_.size() - rest.at);
      auto read = source_.ReadAt(window_at_, std::span(window_).first(window_size_));
      if (!read) {
        error_ = read.error();
        window_size_ = 0;
        return std::nullopt;
      }
    }
    return window_[rest.at++ - window_at_];
  }

  const Source& source_;
  std::array<uint8_t, kWindowBytes> window_{};
  uint64_t window_at_ = 0;
  uint64_t window_size_ = 0;
  std::optional<Error> error_;
};

/// What is wanted of a tf.train.Example.
struct Example {
  std::optional<Stretch> image;
  std::optional<uint64_t> label;
  std::string filename;
  std::string synset;
};

/// The one value of a Feature: BytesList and Int64List hold it as field 1.
std::optional<Stretch> OnlyBytes(WireReader& reader, Stretch feature) {
  const auto list = reader.Next(feature);
  if (!list || list->number != 1 || !list->bytes) return std::nullopt;
  Stretch values = *list->bytes;
  const auto value = reader.Next(values);
  return value && value->number == 1 ? value->bytes : std::nullopt;
}

std::optional<uint64_t> OnlyNumber(WireReader& reader, Stretch feature) {
  const auto list = reader.Next(feature);
  if (!list || list->number != 3 || !list->bytes) return std::nullopt;
  Stretch values = *list->bytes;
  const auto value = reader.Next(values);
  if (!value || value->number != 1) return std::nullopt;
  if (!value->bytes) return value->value;
  Stretch packed = *value->bytes;
  return reader.Varint(packed);
}

/// One entry of the map of features: key and Feature.
bool TakeEntry(WireReader& reader, Stretch entry, Example& out) {
  std::string key;
  std::optional<Stretch> feature;
  while (entry.size() > 0) {
    const auto field = reader.Next(entry);
    if (!field) return false;
    if (field->number == 1 && field->bytes) key = reader.Text(*field->bytes).value_or("");
    if (field->number == 2) feature = field->bytes;
  }
  if (!feature) return true;
  const auto text = [&]() -> std::string {
    const auto bytes = OnlyBytes(reader, *feature);
    return bytes ? reader.Text(*bytes).value_or("") : "";
  };
  if (key == "image/encoded") out.image = OnlyBytes(reader, *feature);
  if (key == "image/class/label") out.label = OnlyNumber(reader, *feature);
  if (key == "image/filename") out.filename = text();
  if (key == "image/class/synset") out.synset = text();
  return true;
}

std::optional<Example> ParseExample(WireReader& reader, Stretch record) {
  Example out;
  while (record.size() > 0) {
    const auto features = reader.Next(record);
    if (!features) return std::nullopt;
    if (features->number != 1 || !features->bytes) continue;
    Stretch entries = *features->bytes;
    while (entries.size() > 0) {
      const auto entry = reader.Next(entries);
      if (!entry || !entry->bytes) return std::nullopt;
      if (entry->number == 1 && !TakeEntry(reader, *entry->bytes, out)) return std::nullopt;
    }
  }
  return out;
}

std::string KeyOf(const Example& example, size_t number) {
  std::string_view name = example.filename;
  while (name.starts_with('/')) name.remove_prefix(1);
  if (name.empty()) return fmt::format("{:08}", number);
  const size_t dot = name.rfind('.');
  const bool has_ending = dot != std::string_view::npos && dot > name.rfind('/') + 1;  // npos + 1 is 0
  return std::string(has_ending ? name.substr(0, dot) : name);
}

}  // namespace

uint32_t MaskedCrc(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8U; }

Result<ShardIndex> ScanTfRecordShard(const Source& shard) {
  ShardIndex index{.shard_bytes = shard.size()};
  WireReader reader(shard);
  uint64_t at = 0;
  const auto bad = [&](std::string_view what) {
    return Fail(ErrorCode::kDataLoss, "{} is no good TFRecord file at byte {}: {}", shard.name(), at, what);
  };
  while (at < shard.size()) {
    const uint64_t left = shard.size() - at;
    if (left < kHeaderBytes + kFooterBytes) return bad("it ends within a record");
    std::array<uint8_t, kHeaderBytes> header{};
    IMGD_TRY(shard.ReadAt(at, header));
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, header.data(), 8);
    std::memcpy(&crc, header.data() + 8, 4);
    if (crc != MaskedCrc(Crc32c(std::span(header).first(8))))
      return bad("the checksum of the length is wrong");
    if (length > left - kHeaderBytes - kFooterBytes) {
      return bad(fmt::format("a record of {} bytes, where {} are left", length, left));
    }
    const uint64_t start = at + kHeaderBytes;
    const auto example = ParseExample(reader, {start, start + length});
    if (reader.error()) return tl::unexpected<Error>(*reader.error());
    if (!example) return bad("the record is no tf.train.Example");
    if (!example->image || !example->label || *example->label > INT32_MAX ||
        example->image->size() > UINT32_MAX) {
      return bad("the record has no image/encoded and image/class/label");
    }
    const auto label = static_cast<int32_t>(*example->label);
    if (!example->synset.empty()) index.class_names[label] = example->synset;
    index.images.push_back({KeyOf(*example, index.images.size()), example->image->at,
                            static_cast<uint32_t>(example->image->size()), label});
    at = start + length + kFooterBytes;
  }
  return index;
}

}  // namespace imgd::data
