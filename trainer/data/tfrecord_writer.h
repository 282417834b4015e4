#pragma once

#include <span>
#include <string>

#include "common/error.h"
#include "trainer/data/output_file.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {

/// Appends one record: its length, its content (in two pieces) and the checksum of each. Format: TensorFlow,
/// "TFRecord and tf.train.Example". Errors: as write(2).
Status AppendTfRecord(OutputFile& file, std::string_view content, std::string_view rest = {});

/// The tf.train.Example of an image in ImageNet's schema, keys in alphabetical order. Format: Protocol
/// Buffers, "Encoding". Gives the first bytes and the rest (with the image) apart, to copy it only once.
struct EncodedExample {
  std::string head;
  std::string features;
};
void EncodeExample(const OutputSet& set, const OutputImage& image, EncodedExample& out);

}  // namespace imgd::data
