#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/core/scheduler.h"

/// When jobs that wait will probably start. For people: no decision depends on it.
namespace imgd {

/// When the job at this place of the queue will start if running jobs end when they are thought to, those
/// before it in the queue take what comes free first, each as long as its time limit, and nobody comes after
/// them to go before it. Nothing where that is not known, because somebody in its way has no known end or
/// because a node has to come back, or where finding out would take too long (a second or so).
/// Cost: O(jobs before it * devices).
std::optional<Instant> ForecastStart(const Snapshot& cluster, const std::vector<QueuedJob>& queue,
                                     size_t place);

/// The same of the first `most` jobs of the queue, or of as many as there are, at the cost of the last.
std::vector<std::optional<Instant>> ForecastStarts(const Snapshot& cluster,
                                                   const std::vector<QueuedJob>& queue, size_t most);

/// The same of a job that is not in the queue yet, and comes to it at its not_before. `job`: without an id.
std::optional<Instant> ForecastLater(const Snapshot& cluster, std::vector<QueuedJob> queue, QueuedJob job);

/// What would become of a job if it were submitted now.
struct Prospect {
  ReasonCode code = ReasonCode::kPlaced;  ///< kPlaced where it would start at once, else why it would wait
  std::string text;                       ///< the same in a sentence
  std::optional<Instant> start;           ///< when it would probably start
};

/// `job`: without an id and a code. Cost: that of a plan and of ForecastStart().
Prospect ProspectOf(const Snapshot& cluster, std::vector<QueuedJob> queue, QueuedJob job);

}  // namespace imgd
