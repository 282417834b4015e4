#pragma once

#include <string>
#include <vector>

#include "imgd/v1/session.pb.h"
#include "server/core/types.h"
#include "server/store/reader.h"

namespace imgd {

/// What somebody wants, for the record: "a shell beside rank 0 of job 7", "`nvidia-smi -L`".
std::string WhatOf(const v1::SessionBegin& begin);
/// How it ended: "exit code 0", "signal 9".
std::string HowOf(const v1::SessionEnd& end);

/// What both its records say.
struct SessionNote {
  JobId job;
  NodeId node;
  std::string actor;
  std::string what;  ///< as WhatOf()

  std::string Begun() const;  ///< "ada begins a shell on node gpu-3"
  std::string Over() const;   ///< "a shell on node gpu-3, of ada, is over"
};

/// Sessions of which the decisions, in order, have the beginning and no end.
std::vector<SessionNote> LeftOpen(const std::vector<StoredDecision>& decisions);

}  // namespace imgd
