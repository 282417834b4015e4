#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/watch.h"
#include "imgd/v1/job.pb.h"

namespace imgd::cli {

/// Shows a followed job. Each call gets the job as it is after what happened.
class WatchView {
 public:
  virtual ~WatchView() = default;

  virtual void OnBegin(const v1::GetJobResponse& job, bool replay) = 0;
  virtual void OnEvent(const v1::JobEvent& event, const v1::Job& job) = 0;
  /// The reason to wait has changed.
  virtual void OnReason(const v1::Job& job) = 0;
  /// The daemon is away; nothing was lost.
  virtual void OnOutage(const v1::Job& job, const Errors& errors) = 0;
  virtual void OnBack(const v1::Job& job) = 0;
  /// Nothing happened for a moment. Returns nothing, costs little.
  virtual void OnIdle(const v1::Job&) {}
  /// The job has ended.
  virtual void OnEnd(const v1::GetJobResponse& job) = 0;
  /// Something else is about to be written; the terminal is left in order.
  virtual void Close() {}
};

/// In place on a terminal; a line an event elsewhere; JSON lines; or nothing but the end.
std::unique_ptr<WatchView> MakeWatchView(Context& context, const WatchOptions& options);

/// The last words: "job 12 (rn18-demo) COMPLETED in 2m31s: top-1 92.4%, top-5 99.8%", and what went wrong.
std::vector<std::string> EndLines(const v1::GetJobResponse& job);

/// The lines of the block in place: a line is made of cells that stand next to each other.
std::vector<std::vector<Cell>> BlockLines(const v1::Job& job, double total_epochs, int64_t now_us, int width,
                                          bool utf8);

/// Epochs in the whole run as the job file says; 0 when it can't be read.
double TotalEpochs(const v1::Job& job);

}  // namespace imgd::cli
