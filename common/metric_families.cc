#include "common/metric_families.h"

#include <prometheus/text_serializer.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

namespace imgd {

using prometheus::MetricType;

void MetricFamilies::Begin(const char* name, MetricType type, const char* help) {
  DropEmpty();
  list_.push_back({.name = name, .help = help, .type = type});
}

void MetricFamilies::Add(MetricLabels labels, std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return;
  auto& metric = list_.back().metric.emplace_back();
  metric.label = std::move(labels);
  (list_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
}

void MetricFamilies::AddHistogram(MetricLabels labels, const prometheus::ClientMetric& histogram) {
  auto& metric = list_.back().metric.emplace_back(histogram);
  metric.label = std::move(labels);
}

std::vector<prometheus::MetricFamily> MetricFamilies::Take() {
  DropEmpty();
  return std::move(list_);
}

void MetricFamilies::DropEmpty() {
  if (!list_.empty() && list_.back().metric.empty()) list_.pop_back();
}

std::string MetricsText(const std::vector<prometheus::MetricFamily>& families) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10 - 1);
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace imgd
