#include "server/rpc/call_times.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>

namespace imgd {
namespace {

const prometheus::Histogram::BucketBoundaries kCallBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};

/// gRPC's own words for its codes, by number.
constexpr std::array kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const char* CodeName(int code) {
  return code >= 0 && static_cast<size_t>(code) < kCodeNames.size() ? kCodeNames[static_cast<size_t>(code)]
                                                                    : "UNKNOWN";
}

/// "JobService.GetJob": only what the contracts have, so that no caller makes new labels.
std::string LabelOf(std::string_view method) {
  constexpr std::string_view kPackage = "/imgd.v1.";
  if (!method.starts_with(kPackage)) return "other";
  std::string name(method.substr(1));
  std::replace(name.begin(), name.end(), '/', '.');
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  return pool->FindMethodByName(name) != nullptr ? name.substr(kPackage.size() - 1) : "other";
}

}  // namespace

void CallTimes::NoteCall(std::string_view method, int code, Duration took) {
  const std::lock_guard lock(mutex_);
  auto& histogram = calls_[{LabelOf(method), code}];
  if (!histogram) histogram = std::make_unique<prometheus::Histogram>(kCallBuckets);
  histogram->Observe(std::chrono::duration<double>(took).count());
}

void CallTimes::NoteStreamBegun(std::string_view method) {
  const std::lock_guard lock(mutex_);
  ++open_streams_[LabelOf(method)];
}

void CallTimes::NoteStreamEnded(std::string_view method, int code) {
  const std::lock_guard lock(mutex_);
  --open_streams_[LabelOf(method)];
  ++ended_streams_[{LabelOf(method), code}];
}

void CallTimes::AddTo(MetricFamilies& families) const {
  using prometheus::MetricType;
  const std::lock_guard lock(mutex_);
  families.Begin("imgd_rpc_seconds", MetricType::Histogram,
                 "Time that calls took, those that came as JSON over HTTP too.");
  for (const auto& [key, histogram] : calls_)
    families.AddHistogram({{"method", key.first}, {"code", CodeName(key.second)}}, histogram->Collect());
  families.Begin("imgd_rpc_streams", MetricType::Gauge,
                 "Calls that are open and go on: agents' connections, watchers, followers of logs.");
  for (const auto& [method, count] : open_streams_) families.Add({{"method", method}}, count);
  families.Begin("imgd_rpc_streams_ended_total", MetricType::Counter, "Such calls that have ended.");
  for (const auto& [key, count] : ended_streams_)
    families.Add({{"method", key.first}, {"code", CodeName(key.second)}}, count);
}

}  // namespace imgd
