#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/job_file.h"

namespace imgd {

/// The job files that were read last: a script that submits one file many times has it read once, which is
/// a third of what a submit costs. Thread-safe.
class JobFileCache {
 public:
  /// As ParseJobFile(). Files with faults are not kept, nor long ones.
  tl::expected<JobSpec, std::vector<Error>> Parse(const std::string& text, const std::string& file);

  static constexpr size_t kMostFiles = 64;
  static constexpr size_t kMostBytes = 65'536;  ///< of a file's text

 private:
  using Key = std::pair<std::string, std::string>;  ///< the text, and the name that it is known by
  std::mutex mutex_;
  std::map<Key, JobSpec> known_;
  std::deque<Key> order_;  ///< the oldest first
};

}  // namespace imgd
