#pragma once

#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/metric_families.h"

namespace imgd {

/// How long gRPC's calls took, by method and code, and how many streams are open. Thread-safe.
class CallTimes {
 public:
  /// `method` is "/imgd.v1.JobService/GetJob": those of other packages than ours count as one, "other".
  /// `code` is gRPC's number.
  void NoteCall(std::string_view method, int code, Duration took);
  void NoteStreamBegun(std::string_view method);
  void NoteStreamEnded(std::string_view method, int code);

  /// All families, each in one piece.
  void AddTo(MetricFamilies& families) const;

 private:
  using Key = std::pair<std::string, int>;

  mutable std::mutex mutex_;  // guards all below
  std::map<Key, std::unique_ptr<prometheus::Histogram>> calls_;
  std::map<std::string, double> open_streams_;
  std::map<Key, double> ended_streams_;
};

}  // namespace imgd
