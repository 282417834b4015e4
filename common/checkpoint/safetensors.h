#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd {

/// A tensor as the safetensors format has it: little-endian, row-major, contiguous. Does not own its bytes.
struct TensorView {
  std::string name;
  std::string dtype;  ///< "F32", "I64", ...: the format's names
  std::vector<int64_t> shape;
  std::string_view bytes;
};

using Metadata = std::map<std::string, std::string>;

/// Bytes of one element; 0 for a name that the format does not have (or whose elements are no whole bytes).
size_t ElementBytes(std::string_view dtype);

/// The head of a file with these tensors, in the order given: u64le length and JSON, padded with spaces so
/// that the data begins at a multiple of 8. The tensors' bytes follow it one after the other. Format:
/// huggingface.co/docs/safetensors. Errors: kInvalidArgument for an unknown dtype, a name twice, or bytes
/// that do not fit the shape.
Result<std::string> SafetensorsHead(const std::vector<TensorView>& tensors, const Metadata& metadata);

/// A file's content, checked. The views point into `content`, which must outlive them.
struct SafetensorsContent {
  std::vector<TensorView> tensors;  ///< in the order of their bytes
  Metadata metadata;
  /// Null when there is none.
  const TensorView* Find(std::string_view name) const;
};

/// Reads what SafetensorsHead() and others write.
/// Errors: kDataLoss for whatever breaks the format's rules: sizes, overlaps, holes, types, a name twice.
Result<SafetensorsContent> ParseSafetensors(std::string_view content);

}  // namespace imgd
