#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"

namespace imgd {

/// Runs a program, the first of `arguments`, with `input` (up to some 60 KiB) to read, and waits for its end.
/// Returns the last line that it says on its standard error, however much that is; empty for none. Errors,
/// with that line: that it can't be started, ends with anything but 0, or takes longer than `timeout`; it is
/// killed then, and two seconds after `stop`. kInvalidArgument where its exit code says, by sysexits.h, that
/// there is no such user.
Result<std::string> RunWithInput(const std::vector<std::string>& arguments, const std::string& input,
                                 Duration timeout, const std::stop_token& stop);

}  // namespace imgd
