#pragma once

#include <string>

#include "imgd/v1/session.pb.h"

namespace imgd {

/// What somebody wants, for the record: "a shell beside rank 0 of job 7", "`nvidia-smi -L`".
std::string WhatOf(const v1::SessionBegin& begin);
/// How it ended: "exit code 0", "signal 9".
std::string HowOf(const v1::SessionEnd& end);

}  // namespace imgd
