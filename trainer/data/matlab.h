#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// One array of a MATLAB file.
struct MatArray {
  enum class Kind {
    kNumbers,  ///< `numbers`, whatever type the file keeps them in
    kText,     ///< `text`
    kCells,    ///< `items`, one for each element
    kStructs,  ///< `items`: for each element its fields, in the order of `fields`
    kOther,    ///< sparse arrays, objects and function handles: passed over
  };
  Kind kind = Kind::kOther;
  std::string name;  ///< of a variable; empty within others
  std::vector<uint32_t> dimensions;
  std::vector<double> numbers;      ///< real parts, column after column
  std::string text;                 ///< UTF-8; a matrix of characters column after column
  std::vector<std::string> fields;  ///< names
  std::vector<MatArray> items;

  /// How many elements the dimensions make.
  uint64_t count() const;
};

/// The variables of a MATLAB 5 file ("MAT-File Format", The MathWorks: level 5), little-endian, compressed or
/// not. Nothing in it is trusted: depth, number of arrays and unpacked bytes are bounded. `name` is for
/// messages. Errors: kDataLoss naming the file, the byte and what is wrong there; kInvalidArgument for
/// MATLAB's other forms.
Result<std::vector<MatArray>> ReadMatFile(const std::string& bytes, const std::string& name);

}  // namespace imgd::data
