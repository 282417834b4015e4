#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/engine/read_pool.h"
#include "server/web/router.h"

/// Checkpoints' files, sent as they lie in their folder.
namespace imgd::web {

inline constexpr const char* kCheckpointFilePath = "/api/v1/jobs/{id}/checkpoints/{name}/files/{file}";

/// GET of that. The pool must outlive it and the answers.
Handler CheckpointFileHandler(ReadPool* pool);

/// Bytes of a file, from the first to before the last.
struct ByteRange {
  uint64_t first = 0;
  uint64_t end = 0;
};

/// What the header "Range" asks for of a file of `size` bytes (RFC 9110, 14.1): one range of bytes. Nothing
/// for whatever else it says, which is answered as if it were not there. A range with no byte of the file has
/// `first` == `end`.
std::optional<ByteRange> RangeOf(std::string_view header, uint64_t size);

}  // namespace imgd::web
