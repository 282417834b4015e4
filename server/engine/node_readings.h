#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imgd/v1/node.pb.h"
#include "server/core/types.h"

namespace imgd {

/// How busy the devices of a node were in each of the last minutes. A copy is cheap.
class RecentBusy {
 public:
  static constexpr size_t kMinutes = 60;

  /// The mean of the devices' busy ratios, as just read. Times never go back.
  void Add(Instant now, double ratio);
  /// The mean of each minute, at most kMinutes, the oldest first; the last is of the minute of `now`. NaN for
  /// one in which nothing was read; empty where nothing ever was.
  std::vector<float> Means(Instant now) const;

 private:
  using Minutes = std::vector<float>;
  std::shared_ptr<const Minutes> over_ = std::make_shared<const Minutes>();  ///< those that are over
  int64_t minute_ = 0;                                                       ///< the one that goes on
  double sum_ = 0;                                                           ///< of what was read in it
  uint32_t count_ = 0;
};

/// What a node says of its devices.
struct NodeReadings {
  using Readings = google::protobuf::RepeatedPtrField<v1::DeviceReading>;
  void Take(const Readings& readings, Instant now);

  std::vector<v1::DeviceReading> latest;  ///< of each device; empty where there are none
  RecentBusy busy;                        ///< of those that could be read
};

}  // namespace imgd
