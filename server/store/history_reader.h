#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/store/history.h"

/// Reads figures for drawing.
namespace imgd {

/// What a curve's points are laid out by.
enum class Axis { kStep, kEpoch, kImages, kTime };

/// Which curves are wanted, and how fine.
struct CurveQuery {
  std::vector<std::string>
      names;  ///< of StepFigures() and ValidationFigures(); empty: all that were reported
  Axis x = Axis::kStep;
  size_t points = 1000;         ///< at most, of each curve; not 0
  std::optional<double> from;   ///< the first x that counts, in steps, epochs, images, or seconds since 1970
  std::optional<double> to;     ///< the last one
  double images_per_epoch = 0;  ///< of kImages
  double smooth = 0;            ///< below 1: weight of what was against each new report; 0 for none
  bool mean = false;
};

/// The values after the point before and up to this x.
struct CurvePoint {
  double x = 0;
  Summary values;
  uint64_t count = 0;
  std::optional<double> smooth = {};  ///< of the last value; NaN where that is no number
};

struct Curve {
  std::string name;
  std::vector<CurvePoint> points;
  /// Of all the values that are numbers; of images_per_second all images over all their time.
  std::optional<double> mean = {};
};

/// Names of validations' figures.
const std::vector<std::string>& ValidationFigures();

/// The curves in the order of their names; no value is left out of a point's least and greatest. Steps that a
/// later start of the job did again count once, as that start did them, and validations from its first report
/// on are its own; but by time all count. Takes about as long for 10^7 values as for 10^4, but means read
/// each, and smoothing those that still count at a point.
/// Throws SQLite::Exception. Errors: kInvalidArgument for a name that there is not; kDataLoss.
Result<std::vector<Curve>> ReadCurves(Database& database, JobId job, const CurveQuery& query);

}  // namespace imgd
