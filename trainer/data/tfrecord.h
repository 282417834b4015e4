#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/error.h"
#include "trainer/data/object_box.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// Makes the index of a TFRecord file of ImageNet's schema: each record a tf.train.Example with
/// image/encoded, image/class/label and, where they are there, image/filename and image/class/synset. The
/// images' bytes are passed over, so that only the checksums of the records' lengths are compared, not those
/// of their content. Labels are as in the file: ImageNet's begin at 1, since 0 was meant for "background";
/// ShardSet sees to that. Formats: TensorFlow, "TFRecord and tf.train.Example"; Protocol Buffers, "Encoding".
/// Errors: kDataLoss naming the file and the byte, for a length whose checksum is wrong or that passes the
/// file's end, and for a record that is no Example with an image and a label.
Result<ShardIndex> ScanTfRecordShard(const Source& shard);

/// The boxes in the content of one record (image/object/bbox/{xmin,ymin,xmax,ymax,label}), and the image's
/// label; labels as in the file. Of lists of several lengths what all of the edges have; none where the
/// content is no Example with a label.
struct RecordBoxes {
  int64_t image_label = 0;
  std::vector<ObjectBox> boxes;
};
RecordBoxes BoxesOfRecord(std::span<const uint8_t> content);

/// The checksum that TFRecord stores: a CRC-32C, turned and moved.
uint32_t MaskedCrc(uint32_t crc);

}  // namespace imgd::data
