#pragma once

#include <filesystem>
#include <functional>
#include <map>

#include "common/error.h"
#include "common/ids.h"

namespace imgd {

/// Remembers across restarts, for each job, the oldest generation that may still be started here: what fences
/// off commands that were overtaken by newer ones. Kept in one small file. Not thread-safe.
class Generations {
 public:
  /// Errors: when the file is damaged or can't be read.
  static Result<Generations> Load(std::filesystem::path file);

  /// True when a run of that generation may be prepared or started.
  bool MayStart(JobId job, Generation generation) const;
  Generation Oldest(JobId job) const;
  /// From now on only `generation` and later ones may start; durable on return. Errors: the disk's.
  Status AllowFrom(JobId job, Generation generation);

 private:
  explicit Generations(std::filesystem::path file) : file_(std::move(file)) {}

  std::filesystem::path file_;
  std::map<JobId, Generation> oldest_;
};

}  // namespace imgd
