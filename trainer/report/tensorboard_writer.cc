#include "trainer/report/tensorboard_writer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "trainer/data/tfrecord_writer.h"

namespace imgd::report {
namespace {

/// A message of Protocol Buffers, written field by field ("Encoding").
class ProtoMessage {
 public:
  ProtoMessage& Number(int field, uint64_t value) {
    Key(field, 0);
    Varint(value);
    return *this;
  }
  ProtoMessage& Double(int field, double value) {
    Key(field, 1);
    Fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtoMessage& Float(int field, float value) {
    Key(field, 5);
    Fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  /// Text, bytes and messages.
  ProtoMessage& Bytes(int field, std::string_view content) {
    Key(field, 2);
    Varint(content.size());
    bytes_ += content;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Key(int field, unsigned wire_type) { Varint(static_cast<unsigned>(field) << 3 | wire_type); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void Fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }

  std::string bytes_;
};

// Numbers of fields, by message.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kImage = 4 };
enum ImageField { kHeight = 1, kWidth = 2, kColorspace = 3, kEncodedImage = 4 };
enum SessionLogField { kStatus = 1 };
constexpr uint64_t kSessionStart = 1;

ProtoMessage EventAt(const Clock& clock) {
  return ProtoMessage().Double(kWallTime, static_cast<double>(clock.Wall().micros) / 1e6);
}

std::string Framed(const ProtoMessage& event) {
  const data::TfRecordFrame frame = data::FrameOf(event.bytes());
  std::string out(frame.head.begin(), frame.head.end());
  out += event.bytes();
  out.append(frame.foot.begin(), frame.foot.end());
  return out;
}

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  std::string text = name.data();
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

}  // namespace

TensorboardWriter::TensorboardWriter(FiguresPlace place, const Clock& clock)
    : place_(std::move(place)), clock_(clock), queue_([this] { return Open(); }) {}

Result<RecordFile> TensorboardWriter::Open() const {
  const auto path =
      place_.folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", clock_.Wall().micros / 1'000'000,
                                  HostName(), ::getpid(), place_.generation);
  const auto version = EventAt(clock_).Bytes(kFileVersion, "brain.Event:2");
  const auto start = EventAt(clock_)
                         .Number(kStep, start_step_ + 1)
                         .Bytes(kSessionLog, ProtoMessage().Number(kStatus, kSessionStart).bytes());
  return RecordFile::Create(path, Framed(version) + Framed(start));
}

Status TensorboardWriter::AddScalars(const ScalarGroup& group) {
  ProtoMessage summary;
  for (const auto& scalar : group.scalars) {
    const auto value =
        ProtoMessage().Bytes(kTag, scalar.tag).Float(kSimpleValue, static_cast<float>(scalar.value));
    summary.Bytes(kValue, value.bytes());
  }
  return queue_.Add(Framed(EventAt(clock_).Number(kStep, group.step).Bytes(kSummary, summary.bytes())));
}

Status TensorboardWriter::AddImage(uint64_t step, std::string_view tag, const EncodedImage& image) {
  const auto picture = ProtoMessage()
                           .Number(kHeight, image.height)
                           .Number(kWidth, image.width)
                           .Number(kColorspace, static_cast<uint64_t>(image.channels))
                           .Bytes(kEncodedImage, image.file);
  const auto value = ProtoMessage().Bytes(kTag, tag).Bytes(kImage, picture.bytes());
  const auto summary = ProtoMessage().Bytes(kValue, value.bytes());
  return queue_.Add(Framed(EventAt(clock_).Number(kStep, step).Bytes(kSummary, summary.bytes())));
}

}  // namespace imgd::report
