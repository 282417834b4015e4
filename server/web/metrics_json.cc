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

/// Names are the table's own (server/store/history.h): none needs an escape.
std::string MetricsJson(const v1::GetMetricsResponse& message) {
  std::string out = "{\"series\":[";
  for (const auto& series : message.series()) {
    if (out.back() != '[') out += ',';
    out += fmt::format("{{\"name\":\"{}\",\"values\":\"{}\",\"points\":[", series.name(), series.values());
    for (const auto& point : series.points()) {
      out += out.back() == '[' ? "[" : ",[";
      AppendNumber(point.x(), out);
      for (const double value : {point.min(), point.max(), point.last()}) {
        out += ',';
        AppendNumber(value, out);
      }
      out += ']';
    }
    out += "]}";
  }
  return out + "]}\n";
}

}  // namespace

std::string ApiJson(const google::protobuf::Message& message) {
  if (const auto* metrics = dynamic_cast<const v1::GetMetricsResponse*>(&message))
    return MetricsJson(*metrics);
  return ToJson(message);
}

}  // namespace imgd::web
