#include "server/web/metrics_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "imgd/v1/job.pb.h"
#include "server/web/json.h"

namespace imgd::web {
namespace {

void AppendNumber(double value, std::string& out) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{}", value);
  } else {
    out += "null";
  }
}

void AppendNumbers(std::string_view name, const google::protobuf::RepeatedField<double>& values,
                   std::string& out) {
  out += fmt::format(",\"{}\":[", name);
  for (const double value : values) {
    if (out.back() != '[') out += ',';
    out += std::isfinite(value) ? fmt::format("{}", value) : "\"NaN\"";  // as protobuf's own mapping has it
  }
  out += ']';
}

void AppendRanks(const v1::GetMetricsResponse& message, std::string& out) {
  out += ",\"ranks\":[";
  for (const auto& stretch : message.ranks()) {
    if (out.back() != '[') out += ',';
    out += fmt::format("{{\"generation\":\"{}\",\"first_step\":\"{}\",\"steps\":\"{}\"", stretch.generation(),
                       stretch.first_step(), stretch.steps());
    AppendNumbers("own_seconds", stretch.own_seconds(), out);
    AppendNumbers("wait_seconds", stretch.wait_seconds(), out);
    out += '}';
  }
  out += ']';
}

/// Names are the table's own (server/store/history.h): none needs an escape.
std::string MetricsJson(const v1::GetMetricsResponse& message) {
  std::string out = "{\"images_per_epoch\":";
  AppendNumber(message.images_per_epoch(), out);
  out += ",\"series\":[";
  for (const auto& series : message.series()) {
    if (out.back() != '[') out += ',';
    out += fmt::format("{{\"name\":\"{}\",\"values\":\"{}\",", series.name(), series.values());
    if (series.has_mean()) {
      out += "\"mean\":";
      AppendNumber(series.mean(), out);
      out += ',';
    }
    out += "\"points\":[";
    for (const auto& point : series.points()) {
      out += out.back() == '[' ? "[" : ",[";
      AppendNumber(point.x(), out);
      for (const double value : {point.min(), point.max(), point.last()}) {
        out += ',';
        AppendNumber(value, out);
      }
      if (point.has_smooth()) {
        out += ',';
        AppendNumber(point.smooth(), out);
      }
      out += ']';
    }
    out += "]}";
  }
  out += ']';
  if (!message.ranks().empty()) AppendRanks(message, out);
  return out + "}\n";
}

}  // namespace

std::string ApiJson(const google::protobuf::Message& message) {
  if (const auto* metrics = dynamic_cast<const v1::GetMetricsResponse*>(&message))
    return MetricsJson(*metrics);
  return ToJson(message);
}

}  // namespace imgd::web
