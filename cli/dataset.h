#pragma once

#include <CLI/App.hpp>

namespace imgd::cli {

/// Adds `dataset synth` and `dataset info`. When one of them has run, `exit_code` is the program's
/// (docs/exit-codes.md); it must live as long as `app`. Results go to standard output, errors to standard
/// error, progress only to a terminal.
void AddDatasetCommands(CLI::App& app, int& exit_code);

}  // namespace imgd::cli
