#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

/// The form of a column of numbers in metrics.db. One byte says which:
///   0  all the same: 8 bytes of it
///   1  whole numbers: the second differences, zigzag, as LEB128, deflated
///   2  numbers that fit into 32 bits of floating point: all first bytes, all second ones, ..., deflated
///   3  other numbers of 64 bits, the same way
/// All little-endian. How many they are is not in there. Nothing is rounded; a NaN stays one.
namespace imgd {

std::string EncodeColumn(std::span<const double> values);
/// Errors: kDataLoss for what is no column of `count` numbers.
Result<std::vector<double>> DecodeColumn(std::string_view data, size_t count);

}  // namespace imgd
