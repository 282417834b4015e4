#pragma once

#include <string>

#include "imgd/v1/node.pb.h"

namespace imgd::cli {

/// What a device does now. NaN is what nobody knows: it could not be read, the node is out of reach, or it is
/// a CPU slot, which has readings of nothing.
struct DeviceNow {
  double busy_ratio;
  double memory_used_bytes;
  double watts;
  double celsius;

  bool IsKnown() const;  ///< at least one of them
};

DeviceNow NowOf(const v1::Node& node, const v1::Device& device);

/// What is wrong with a device, as it was read last: "power can't be read: Not Supported, held back by heat";
/// empty when nothing is.
std::string TroubleOf(const v1::Device& device);

/// Of those values that are known.
struct KnownSum {
  double sum = 0;
  int count = 0;

  void Add(double value);
  double Sum() const;   ///< NaN for none
  double Mean() const;  ///< NaN for none
};

}  // namespace imgd::cli
