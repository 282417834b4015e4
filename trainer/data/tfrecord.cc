#include "trainer/data/tfrecord.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
    uint64_t value = 0;  ///< a number's, or a float's bits
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
      case 5: {
        const auto value = Fixed32(rest);
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
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

  std::optional<uint32_t> Fixed32(Stretch& rest) {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) {
      const auto byte = Byte(rest);
      if (!byte) return std::nullopt;
      value |= uint32_t{*byte} << shift;
    }
    return value;
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

/// Lists of image/object/bbox/*: edges in the order of kEdgeNames.
struct BoxLists {
  std::array<std::vector<float>, 4> edges;
  std::vector<int64_t> labels;
};
constexpr std::string_view kBoxPrefix = "image/object/bbox/";
constexpr std::array<std::string_view, 4> kEdgeNames = {"xmin", "ymin", "xmax", "ymax"};

/// What is wanted of a tf.train.Example.
struct ExampleFields {
  std::optional<Stretch> image;
  std::optional<uint64_t> label;
  std::string filename;
  std::string synset;
  std::optional<Stretch> words;
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

std::vector<float> Floats(WireReader& reader, Stretch feature) {
  std::vector<float> out;
  const auto list = reader.Next(feature);
  if (!list || list->number != 2 || !list->bytes) return out;
  const auto add = [&](uint64_t bits) { out.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits))); };
  Stretch values = *list->bytes;
  while (const auto value = reader.Next(values)) {
    if (!value->bytes) add(value->value);
    Stretch packed = value->bytes.value_or(Stretch{});
    while (const auto bits = reader.Fixed32(packed)) add(*bits);
  }
  return out;
}

std::vector<int64_t> Numbers(WireReader& reader, Stretch feature) {
  std::vector<int64_t> out;
  const auto list = reader.Next(feature);
  if (!list || list->number != 3 || !list->bytes) return out;
  Stretch values = *list->bytes;
  while (const auto value = reader.Next(values)) {
    if (!value->bytes) out.push_back(static_cast<int64_t>(value->value));
    Stretch packed = value->bytes.value_or(Stretch{});
    while (const auto number = reader.Varint(packed)) out.push_back(static_cast<int64_t>(*number));
  }
  return out;
}

void TakeBoxList(WireReader& reader, std::string_view list, Stretch feature, BoxLists& out) {
  for (size_t i = 0; i < kEdgeNames.size(); ++i) {
    if (list == kEdgeNames[i]) out.edges[i] = Floats(reader, feature);
  }
  if (list == "label") out.labels = Numbers(reader, feature);
}

/// One entry of the map of features: key and Feature.
bool TakeEntry(WireReader& reader, Stretch entry, ExampleFields& out, BoxLists* boxes) {
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
  if (key == "image/class/text") out.words = OnlyBytes(reader, *feature);
  if (boxes != nullptr && key.starts_with(kBoxPrefix))
    TakeBoxList(reader, std::string_view(key).substr(kBoxPrefix.size()), *feature, *boxes);
  return true;
}

std::optional<ExampleFields> ParseExample(WireReader& reader, Stretch record, BoxLists* boxes = nullptr) {
  ExampleFields out;
  while (record.size() > 0) {
    const auto features = reader.Next(record);
    if (!features) return std::nullopt;
    if (features->number != 1 || !features->bytes) continue;
    Stretch entries = *features->bytes;
    while (entries.size() > 0) {
      const auto entry = reader.Next(entries);
      if (!entry || !entry->bytes) return std::nullopt;
      if (entry->number == 1 && !TakeEntry(reader, *entry->bytes, out, boxes)) return std::nullopt;
    }
  }
  return out;
}

std::string KeyOf(const ExampleFields& example, size_t number) {
  std::string_view name = example.filename;
  while (name.starts_with('/')) name.remove_prefix(1);
  if (name.empty()) return fmt::format("{:08}", number);
  const size_t dot = name.rfind('.');
  const bool has_ending = dot != std::string_view::npos && dot > name.rfind('/') + 1;  // npos + 1 is 0
  return std::string(has_ending ? name.substr(0, dot) : name);
}

/// Bytes in memory as a source; they must outlive it.
class BytesSource final : public Source {
 public:
  explicit BytesSource(std::span<const uint8_t> bytes) : Source("", bytes.size(), ""), bytes_(bytes) {}
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return Fail(ErrorCode::kDataLoss, "the record ends too early");
    std::ranges::copy(bytes_.subspan(offset, out.size()), out.begin());
    return {};
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace

RecordBoxes BoxesOfRecord(std::span<const uint8_t> content) {
  const BytesSource source(content);
  WireReader reader(source);
  BoxLists lists;
  const auto example = ParseExample(reader, {0, content.size()}, &lists);
  RecordBoxes out;
  if (!example || !example->label) return out;
  out.image_label = static_cast<int64_t>(*example->label);
  const auto& edges = lists.edges;
  const size_t count = std::ranges::min(edges, {}, &std::vector<float>::size).size();
  for (size_t i = 0; i < count; ++i) {
    ObjectBox box{edges[0][i], edges[1][i], edges[2][i], edges[3][i]};
    const bool known = i < lists.labels.size() && lists.labels[i] >= 0 && lists.labels[i] <= INT32_MAX;
    if (known) box.label = static_cast<int32_t>(lists.labels[i]);
    out.boxes.push_back(box);
  }
  return out;
}

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
    if (example->words && !index.class_words.contains(label))
      index.class_words[label] = reader.Text(*example->words).value_or("");
    index.images.push_back({KeyOf(*example, index.images.size()), example->image->at,
                            static_cast<uint32_t>(example->image->size()), label});
    at = start + length + kFooterBytes;
  }
  return index;
}

}  // namespace imgd::data
