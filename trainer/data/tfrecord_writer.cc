#include "trainer/data/tfrecord_writer.h"

#include <cstring>

#include "trainer/data/crc32c.h"
#include "trainer/data/image_name.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

// Numbers of the lists in tf.train.Feature.
enum class FeatureList : char { kBytes = 1, kFloats = 2, kNumbers = 3 };

constexpr char Tag(int field) { return static_cast<char>(field << 3 | 2); }  // of bytes and messages

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

uint64_t VarintBytes(uint64_t value) {
  uint64_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

/// With its tag, which has one byte.
uint64_t FieldBytes(uint64_t content) { return 1 + VarintBytes(content) + content; }

void PutField(std::string& out, int field, std::string_view content) {
  out += Tag(field);
  PutVarint(out, content.size());
  out += content;
}

/// One entry of Features' map: the key, and a Feature whose list has `content` as its only field: bytes, or
/// packed numbers.
void PutFeature(std::string& out, std::string_view key, FeatureList list, std::string_view content) {
  const uint64_t list_bytes = FieldBytes(content.size());
  const uint64_t feature_bytes = FieldBytes(list_bytes);
  out += Tag(1);
  PutVarint(out, FieldBytes(key.size()) + FieldBytes(feature_bytes));
  PutField(out, 1, key);
  out += Tag(2);
  PutVarint(out, feature_bytes);
  out += Tag(static_cast<int>(list));
  PutVarint(out, list_bytes);
  PutField(out, 1, content);
}

void PutNumber(std::string& out, std::string_view key, uint64_t value) {
  std::string packed;
  PutVarint(packed, value);
  PutFeature(out, key, FeatureList::kNumbers, packed);
}

void PutBoxes(std::string& out, const OutputImage& image, int32_t first) {
  const auto boxes = image.boxes;
  std::string labels;
  for (const auto& box : boxes) {
    PutVarint(labels, static_cast<uint64_t>(int64_t{box.label < 0 ? image.label : box.label} + first));
  }
  const auto edges = [&](float ObjectBox::*edge) {
    std::string packed;
    for (const auto& box : boxes) packed.append(reinterpret_cast<const char*>(&(box.*edge)), 4);
    return packed;
  };
  PutFeature(out, "image/object/bbox/label", FeatureList::kNumbers, labels);
  PutFeature(out, "image/object/bbox/xmax", FeatureList::kFloats, edges(&ObjectBox::xmax));
  PutFeature(out, "image/object/bbox/xmin", FeatureList::kFloats, edges(&ObjectBox::xmin));
  PutFeature(out, "image/object/bbox/ymax", FeatureList::kFloats, edges(&ObjectBox::ymax));
  PutFeature(out, "image/object/bbox/ymin", FeatureList::kFloats, edges(&ObjectBox::ymin));
}

std::string_view Text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class TfRecordWriter final : public ShardWriter {
 public:
  TfRecordWriter(const OutputSet& set, std::string name, OutputFile file)
      : set_(set), name_(std::move(name)), file_(std::move(file)) {}

  Status Add(const OutputImage& image) override {
    EncodeExample(set_, image, example_);
    ++images_;
    return AppendTfRecord(file_, example_.head, example_.features);
  }

  Result<SetDescription::Shard> Finish() override {
    IMGD_TRY(file_.Finish());
    return SetDescription::Shard{name_, file_.bytes(), images_, fmt::format("{:08x}", file_.crc32c())};
  }

 private:
  const OutputSet& set_;
  const std::string name_;
  OutputFile file_;
  uint32_t images_ = 0;
  EncodedExample example_;
};

}  // namespace

TfRecordFrame FrameOf(std::string_view content, std::string_view rest) {
  TfRecordFrame frame;
  const uint64_t length = content.size() + rest.size();
  std::memcpy(frame.head.data(), &length, 8);
  const uint32_t length_crc = MaskedCrc(Crc32c(AsBytes({frame.head.data(), 8})));
  std::memcpy(frame.head.data() + 8, &length_crc, 4);
  const uint32_t content_crc = MaskedCrc(Crc32c(AsBytes(rest), Crc32c(AsBytes(content))));
  std::memcpy(frame.foot.data(), &content_crc, 4);
  return frame;
}

Status AppendTfRecord(OutputFile& file, std::string_view content, std::string_view rest) {
  const TfRecordFrame frame = FrameOf(content, rest);
  IMGD_TRY(file.Write(AsBytes({frame.head.data(), frame.head.size()})));
  IMGD_TRY(file.Write(AsBytes(content)));
  IMGD_TRY(file.Write(AsBytes(rest)));
  return file.Write(AsBytes({frame.foot.data(), frame.foot.size()}));
}

void EncodeExample(const OutputSet& set, const OutputImage& image, EncodedExample& out) {
  const auto label = static_cast<uint64_t>(int64_t{image.label} + set.first_label);
  const auto number = static_cast<size_t>(image.label);
  const std::string& class_name = set.classes[number];
  const bool has_words = number < set.words.size() && !set.words[number].empty();
  const bool grey = image.facts.components == 1;
  const bool png = image.facts.kind == FileKind::Kind::kPng;
  std::string& features = out.features;
  features.clear();
  PutNumber(features, "image/channels", grey ? 1 : 3);
  PutNumber(features, "image/class/label", label);
  PutFeature(features, "image/class/synset", FeatureList::kBytes, class_name);
  PutFeature(features, "image/class/text", FeatureList::kBytes, has_words ? set.words[number] : class_name);
  PutFeature(features, "image/colorspace", FeatureList::kBytes, grey ? "Grayscale" : "RGB");
  PutFeature(features, "image/encoded", FeatureList::kBytes, Text(image.file));
  PutFeature(features, "image/filename", FeatureList::kBytes, WithImageEnding(image.name));
  PutFeature(features, "image/format", FeatureList::kBytes, png ? "PNG" : "JPEG");
  PutNumber(features, "image/height", image.facts.height);
  if (set.boxes) PutBoxes(features, image, set.first_label);
  PutNumber(features, "image/width", image.facts.width);
  out.head.clear();
  out.head += Tag(1);
  PutVarint(out.head, features.size());
}

Result<std::unique_ptr<ShardWriter>> OpenTfRecordWriter(const OutputSet& set, const std::string& shard) {
  IMGD_ASSIGN(auto file, OutputFile::Create(set.folder + "/" + shard));
  return std::make_unique<TfRecordWriter>(set, shard, std::move(file));
}

}  // namespace imgd::data
