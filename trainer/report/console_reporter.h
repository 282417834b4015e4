#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "trainer/report/reporter.h"

namespace imgd::report {

/// How the console reporter writes.
struct ConsoleOptions {
  bool in_place = false;          ///< progress overwrites its own line; for terminals
  bool quiet = false;             ///< bad images and notes only: for ranks other than 0
  uint64_t line_every_steps = 1;  ///< where not in_place, a line of progress after so many steps
};

/// Reports by lines for people. Progress that is not in place is a table as image classifiers' logs have it:
/// Step Epoch Speed Loss FinLoss LR, with Speed in images/s of all ranks and FinLoss the loss with what
/// weight decay adds to it. Progress, epochs and checkpoints go to `out`; notes and bad images to `err`; the
/// error that ends the program is main()'s to print. Both streams must outlive the reporter.
std::unique_ptr<Reporter> MakeConsoleReporter(ConsoleOptions options, std::FILE* out, std::FILE* err);

/// "0:01:23", "2d 3:04:05".
std::string FormatDuration(double seconds);

/// "512 B", "94.1 MB".
std::string FormatBytes(uint64_t bytes);

}  // namespace imgd::report
