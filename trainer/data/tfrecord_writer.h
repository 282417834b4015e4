#pragma once

#include <array>
#include <span>
#include <string>

#include "common/error.h"
#include "trainer/data/output_file.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {

/// What stands before and behind the content of a record: its length, and the checksum of each. Format:
/// TensorFlow, "TFRecord and tf.train.Example".
struct TfRecordFrame {
  std::array<char, 12> head;
  std::array<char, 4> foot;
};
/// Of content in two pieces.
TfRecordFrame FrameOf(std::string_view content, std::string_view rest = {});

/// Appends one record: the content, in two pieces, in its frame. Errors: as write(2).
Status AppendTfRecord(OutputFile& file, std::string_view content, std::string_view rest = {});

/// The tf.train.Example of an image in ImageNet's schema, keys in alphabetical order. Format: Protocol
/// Buffers, "Encoding". Gives the first bytes and the rest (with the image) apart, to copy it only once.
struct EncodedExample {
  std::string head;
  std::string features;
};
void EncodeExample(const OutputSet& set, const OutputImage& image, EncodedExample& out);

}  // namespace imgd::data
