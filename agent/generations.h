#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/error.h"
#include "common/ids.h"

namespace imgd {

/// Remembers across restarts, for each cluster and job, the oldest generation that may still be started here:
/// what fences off commands that were overtaken by newer ones. Each daemon numbers its jobs from 1, so the
/// floors of one say nothing of another's. Kept in one small file. Not thread-safe.
class Generations {
 public:
  /// Errors: when the file is damaged or can't be read.
  static Result<Generations> Load(std::filesystem::path file);

  /// True when a run of that generation may be prepared or started.
  bool MayStart(const std::string& cluster, JobId job, Generation generation) const;
  Generation Oldest(const std::string& cluster, JobId job) const;
  /// From now on only `generation` and later ones may start; durable on return. Errors: the disk's.
  Status AllowFrom(const std::string& cluster, JobId job, Generation generation);

 private:
  using Floors = std::map<JobId, Generation>;
  explicit Generations(std::filesystem::path file) : file_(std::move(file)) {}

  std::filesystem::path file_;
  std::map<std::string, Floors> clusters_;
};

}  // namespace imgd
