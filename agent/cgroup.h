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

  /// Its folder, for ForkInto(); not valid without one.
  UniqueFd Open() const;
  /// Sends SIGKILL to every process in the group, those included that are being forked now.
  void Kill() const;
  std::vector<pid_t> Processes() const;
  /// Removes the group, which must be empty.
  void Remove() const;

 private:
  std::filesystem::path path_;
};

/// As fork(2), from a process of one thread, for a child that only executes a program: handlers of forks do
/// not run. The child is in the group from its first moment; `group` is of Cgroup::Open(), and -1 is none.
/// Where clone3 is refused, as a unit of systemd with RestrictNamespaces= and many containers do, the child
/// moves there, which waits for an RCU grace period of the kernel: 10 to 25 ms (Linux 6.18).
pid_t ForkInto(int group);

}  // namespace imgd
