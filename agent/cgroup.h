#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// A cgroup v2 group that holds the ranks of one run; cgroups(7), Documentation/admin-guide/cgroup-v2.rst.
class Cgroup {
 public:
  /// The group at `path`; nothing is made. An empty path is no group: every call does nothing.
  explicit Cgroup(std::filesystem::path path = {}) : path_(std::move(path)) {}

  /// Makes `name` below the group of a process, by its pid; by default the caller's own. Errors: where there
  /// is no cgroup v2, no right to make one, or a kernel before 5.14, which has no cgroup.kill.
  static Result<Cgroup> Create(const std::string& name, const std::string& process = "self");

  bool valid() const { return !path_.empty(); }
  const std::filesystem::path& path() const { return path_; }

  /// A descriptor that a new process writes "0" to so as to move itself into the group.
  UniqueFd OpenForJoining() const;
  /// Sends SIGKILL to every process in the group, those included that are being forked now.
  void Kill() const;
  std::vector<pid_t> Processes() const;
  /// Removes the group, which must be empty.
  void Remove() const;

 private:
  std::filesystem::path path_;
};

}  // namespace imgd
