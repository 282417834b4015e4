#pragma once

#include <CLI/CLI.hpp>

#include "cli/app.h"

namespace imgd::cli {

// Each adds one command (with its help) to `app`. The context outlives the app.
void AddSubmitCommand(CLI::App& app, Context& context);
void AddJobsCommand(CLI::App& app, Context& context);
void AddShowCommand(CLI::App& app, Context& context);
void AddWatchCommand(CLI::App& app, Context& context);
void AddWaitCommand(CLI::App& app, Context& context);
void AddLogsCommand(CLI::App& app, Context& context);
void AddCancelCommand(CLI::App& app, Context& context);
void AddNodesCommand(CLI::App& app, Context& context);

/// `-o, --output table|wide|json|yaml`.
void AddOutputOption(CLI::App& command, OutputFormat& format);

/// The positional JOB.
void AddJobArgument(CLI::App& command, std::string& job);

}  // namespace imgd::cli
