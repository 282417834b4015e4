#pragma once

namespace imgd::data {

/// How a JPEG comes to the size that is wanted.
enum class DecodeMode {
  kExact,  ///< decoded at its full size, then resized
  kFast,   ///< the decoder shrinks it by 2, 4 or 8 where the crop then still is as large as the result
};

}  // namespace imgd::data
