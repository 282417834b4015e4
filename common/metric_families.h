#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <vector>

namespace imgd {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

/// What a program shows to Prometheus, put together family by family. A value that is not known or no number
/// is left out, and so is a family without any. Not thread-safe.
class MetricFamilies {
 public:
  /// What follows is of this family. Its name has a unit, and `_total` where it is a counter.
  void Begin(const char* name, prometheus::MetricType type, const char* help);
  /// A gauge or a counter, as the family is.
  void Add(MetricLabels labels, std::optional<double> value);
  /// A histogram, as prometheus::Histogram::Collect() gives it.
  void AddHistogram(MetricLabels labels, const prometheus::ClientMetric& histogram);
  /// In the order in which they were begun.
  std::vector<prometheus::MetricFamily> Take();

 private:
  void DropEmpty();

  std::vector<prometheus::MetricFamily> list_;
};

/// Prometheus' text format, version 0.0.4, with all digits that a double has.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);

/// Its type, for HTTP.
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace imgd
