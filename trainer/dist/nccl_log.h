#pragma once

#include <filesystem>
#include <string>

#include "common/job_file.h"
#include "trainer/dist/fabric.h"
#include "trainer/environment.h"

namespace imgd::trainer {

/// Gives NCCL the job's settings, and reads in its log what it made of the machine. Used by the training
/// thread, before NCCL is.
class NcclLog {
 public:
  NcclLog() = default;
  NcclLog(NcclLog&& other) noexcept;
  NcclLog& operator=(NcclLog&&) = delete;
  /// NCCL goes on writing to what has no name any more.
  ~NcclLog();

  /// Sets the job's NCCL_* variables. Where several nodes have a fast fabric, NCCL is made to write its log
  /// to a file, unless the job allows TCP or somebody has named a file for it already.
  static NcclLog Begin(const JobSpec::Dist& dist, const Environment& env, Fabric fabric);

  /// What there is between the nodes, and whether it is looked after, for people; empty for a single node.
  const std::string& note() const { return note_; }

  /// After the first collective. Errors: as CheckFabric.
  Status Check() const;

 private:
  Fabric fabric_;
  std::filesystem::path file_;  ///< empty where the log is not looked at
  bool is_temporary_ = false;   ///< else it is in the run's folder, and goes with it
  std::string note_;
};

}  // namespace imgd::trainer
