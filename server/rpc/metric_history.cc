#include "server/rpc/metric_history.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "server/rpc/errors.h"

namespace imgd {
namespace {

constexpr uint32_t kUsualPoints = 1000;
constexpr uint32_t kMostPoints = 10'000;
constexpr int kMostNames = 64;
constexpr double kMostSmooth = 0.999;
constexpr std::array<std::pair<std::string_view, Axis>, 4> kAxes = {
    {{"step", Axis::kStep}, {"epoch", Axis::kEpoch}, {"images", Axis::kImages}, {"time", Axis::kTime}}};

Result<Axis> AxisOf(const std::string& name) {
  if (name.empty()) return Axis::kStep;
  for (const auto& [known, axis] : kAxes) {
    if (name == known) return axis;
  }
  return Fail(ErrorCode::kInvalidArgument, "x: found '{}'; allowed: step, epoch, images, time",
              name.substr(0, 100));
}

/// Images in the job's training set, as its ranks said; 0 where none did.
Result<double> TrainImages(JobId job, Reader& reader) {
  IMGD_ASSIGN(const auto event, reader.Latest(job, EventKind::kRankStarted));
  v1::RankStarted started;
  if (event) started.ParseFromString(event->payload);
  return static_cast<double>(started.started().train_images());
}

Result<CurveQuery> QueryOf(const v1::GetMetricsRequest& request) {
  CurveQuery query;
  IMGD_ASSIGN(query.x, AxisOf(request.x()));
  if (request.points() > kMostPoints) {
    return Fail(ErrorCode::kInvalidArgument, "points: found {}; allowed: 1 to {}", request.points(),
                kMostPoints);
  }
  if (request.names_size() > kMostNames) {
    return Fail(ErrorCode::kInvalidArgument, "names: found {}; at most {} are allowed", request.names_size(),
                kMostNames);
  }
  for (const auto& name : request.names()) {
    if (std::find(query.names.begin(), query.names.end(), name) == query.names.end())
      query.names.push_back(name);
  }
  query.points = request.points() == 0 ? kUsualPoints : request.points();
  if (request.has_from()) query.from = request.from();
  if (request.has_to()) query.to = request.to();
  if (std::isnan(request.from()) || std::isnan(request.to()))
    return Fail(ErrorCode::kInvalidArgument, "from, to: a number is expected");
  if (request.has_from() && request.has_to() && request.from() > request.to()) {
    return Fail(ErrorCode::kInvalidArgument, "from, to: found {} and {}; from may not be above to",
                request.from(), request.to());
  }
  if (!(request.smooth() >= 0 && request.smooth() <= kMostSmooth)) {
    return Fail(ErrorCode::kInvalidArgument, "smooth: found {}; allowed: 0 to {}", request.smooth(),
                kMostSmooth);
  }
  query.smooth = request.smooth();
  query.mean = request.mean();
  return query;
}

/// That the job has reported: the stretch in which it is goes no further.
Result<uint64_t> LastStep(JobId job, Reader& reader) {
  IMGD_ASSIGN(const auto event, reader.Latest(job, EventKind::kStep));
  v1::StepMetrics step;
  if (event) step.ParseFromString(event->payload);
  return step.step();
}

Status FillRanks(JobId job, Reader& reader, v1::GetMetricsResponse& out) {
  IMGD_ASSIGN(const auto stretches, reader.RankTimes(job));
  IMGD_ASSIGN(const uint64_t last, LastStep(job, reader));
  for (const auto& stretch : stretches) {
    auto* added = out.add_ranks();
    added->set_generation(stretch.generation.value());
    added->set_first_step(stretch.first_step);
    added->set_steps(std::min(stretch.steps, std::max(last, stretch.first_step) + 1 - stretch.first_step));
    for (const auto& cell : stretch.ranks) {
      const double steps = cell.steps > 0 ? cell.steps : std::nan("");
      added->add_own_seconds(cell.own_seconds / steps);
      added->add_wait_seconds(cell.wait_seconds / steps);
    }
  }
  return {};
}

}  // namespace

Status FillMetrics(const v1::GetMetricsRequest& request, Reader& reader, v1::GetMetricsResponse& out) {
  const JobId job(request.id());
  IMGD_ASSIGN(auto query, QueryOf(request));
  IMGD_ASSIGN(const auto row, reader.Job(job, false));
  if (!row) return tl::unexpected(NoJob(job));
  IMGD_ASSIGN(query.images_per_epoch, TrainImages(job, reader));
  out.set_images_per_epoch(query.images_per_epoch);
  if (request.ranks()) IMGD_TRY(FillRanks(job, reader, out));
  IMGD_ASSIGN(const auto curves, reader.Curves(job, query));
  for (const auto& curve : curves) {
    auto* series = out.add_series();
    series->set_name(curve.name);
    uint64_t values = 0;
    for (const auto& point : curve.points) {
      values += point.count;
      auto* added = series->add_points();
      added->set_x(point.x);
      added->set_min(point.values.min);
      added->set_max(point.values.max);
      added->set_last(point.values.last);
      if (point.smooth) added->set_smooth(*point.smooth);
    }
    series->set_values(values);
    if (curve.mean) series->set_mean(*curve.mean);
  }
  return {};
}

}  // namespace imgd
