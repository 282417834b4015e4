#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd {

/// A user of this machine that ranks run as. Without a name: as who the agent is.
struct UnixUser {
  std::string name;
  uint32_t uid = 0;
  uint32_t gid = 0;              ///< of the user's own group
  std::vector<uint32_t> groups;  ///< all others
  std::string home;

  bool given() const { return !name.empty(); }
};

/// The user of that name with his groups and `groups` besides. Root is found by the name root only.
/// Errors: kNotFound for a user or group that this machine does not know; kInvalidArgument for another name
/// of root's.
Result<UnixUser> FindUnixUser(const std::string& name, const std::vector<std::string>& groups);

/// Whether this process runs as the user, with his groups and no others.
bool IsThisProcess(const UnixUser& user);

/// Whether ranks can be started as the user, and ended. Errors: kPermissionDenied with the capabilities that
/// lack.
Status MayBecome(const UnixUser& user);

/// Makes this process, which has one thread and is about to exec, that user, for good: groups, no capability
/// that an exec keeps, and no_new_privs. Without a name it only takes away what the agent may for the sake of
/// this. Returns errno, 0 when it went well. Allocates nothing.
int Become(const UnixUser& user);

/// Does `work` in a child process as that user, and returns what it returned. What it changes in memory is
/// lost; it ends where this process does. Errors: also when the user can't be become.
Status DoAs(const UnixUser& user, const std::function<Status()>& work);

}  // namespace imgd
