#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "common/error.h"

namespace imgd {

/// Sets up the process's log: standard error, one line an event, UTC time with microseconds, level, program.
/// `level` is trace, debug, info, warn or error. Errors: kInvalidArgument for another word.
/// Lines are `key=value` pairs, the ids first: spdlog::info("job={} gen={} msg=\"placed on {} nodes\"", ...).
Status SetUpLog(const std::string& program, const std::string& level);

}  // namespace imgd
