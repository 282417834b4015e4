#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/settings.h"
#include "common/files.h"
#include "imgd/v1/dataset_facts.pb.h"
#include "imgd/v1/trainer.pb.h"

namespace imgd::cli {

/// Tells imgd how a conversion goes that is one of its jobs: by events in the run's folder
/// (proto/imgd/v1/trainer.proto), which the agent sends on. Elsewhere it does nothing; nor where the folder
/// has such events already, or they can't be written: what matters is the conversion. One thread at a time.
class JobReport {
 public:
  explicit JobReport(const Environment& env);

  /// At most one a second is told, but for the first and last of each thing that is done in each part.
  void Progress(const v1::DatasetProgress& progress);
  void Facts(const v1::DatasetFacts& facts);
  bool IsOn() const { return fd_.valid(); }

 private:
  void Write(v1::TrainerEvent event);

  UniqueFd fd_;
  uint64_t sequence_ = 0;
  std::string doing_;  ///< and of which part, as it was last told
  std::chrono::steady_clock::time_point due_;
};

}  // namespace imgd::cli
