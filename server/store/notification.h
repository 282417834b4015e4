#pragma once

#include <string>

#include "common/clock.h"
#include "common/ids.h"

namespace imgd {

/// Something that one target is to be told and has not been yet.
struct Notification {
  std::string id;  ///< of this delivery: cluster, job, number of the job's event, target
  JobId job;
  std::string target;  ///< its name in imgd.yaml
  std::string body;    ///< JSON (docs/notifications.md)
  WallTime created;
  bool operator==(const Notification&) const = default;
};

}  // namespace imgd
