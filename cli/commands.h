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
void AddDatasetCommands(CLI::App& app, Context& context);  // they need no daemon

/// What a command can print: a listing also wide; events and lines, or a sentence, without.
inline const std::vector<std::string> kListingFormats = {"table", "wide", "json", "yaml"};
inline const std::vector<std::string> kPlainFormats = {"table", "json", "yaml"};

/// `-o, --output`, one of `allowed`.
void AddOutputOption(CLI::App& command, OutputFormat& format,
                     const std::vector<std::string>& allowed = kListingFormats);

/// An option with a whole number from `least` to `most`; the error for anything else names it and them.
CLI::Option* AddNumberOption(CLI::App& command, const std::string& name, const std::string& help,
                             uint64_t least, uint64_t most, const std::function<void(uint64_t)>& set);

/// The positional JOB.
void AddJobArgument(CLI::App& command, std::string& job);

}  // namespace imgd::cli
