#pragma once

#include "common/metric_families.h"

namespace imgd {

/// What this process takes of its machine, by the names that Prometheus' own libraries give it: processor
/// time, memory, open files, when it began. What /proc does not tell is left out.
void AddProcess(MetricFamilies& families);

}  // namespace imgd
