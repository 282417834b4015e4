#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "common/clock.h"
#include "trainer/report/reporter.h"

namespace imgd::report {

/// How the console reporter writes.
struct ConsoleOptions {
  bool in_place = false;                              ///< progress overwrites its own line; for terminals
  bool quiet = false;                                 ///< bad images and notes only: for ranks other than 0
  Duration line_interval = std::chrono::seconds(10);  ///< least time between progress lines when not in_place
};

/// Reports by lines for people. Progress, epochs and checkpoints go to `out`; notes and bad images to `err`;
/// the error that ends the program is main()'s to print. Both streams and `clock` must outlive the reporter.
std::unique_ptr<Reporter> MakeConsoleReporter(ConsoleOptions options, std::FILE* out, std::FILE* err,
                                              const Clock& clock);

/// "0:01:23", "2d 3:04:05".
std::string FormatDuration(double seconds);

/// "512 B", "94.1 MB".
std::string FormatBytes(uint64_t bytes);

}  // namespace imgd::report
