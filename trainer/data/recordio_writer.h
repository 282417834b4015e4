#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/error.h"
#include "trainer/data/output_file.h"

namespace imgd::data {

/// Appends one record, cut wherever `content` has the magic number at a whole word, which is left out there;
/// true when it was cut. Format: dmlc-core, include/dmlc/recordio.h. Errors: as write(2); kInvalidArgument
/// for 512 MiB or more.
Result<bool> AppendRecord(OutputFile& file, std::span<const uint8_t> content);

/// The content of an image's record: header and file. Format: MXNet, src/io/image_recordio.h.
void EncodeImageRecord(float label, uint64_t id, std::span<const uint8_t> image, std::vector<uint8_t>& out);

}  // namespace imgd::data
