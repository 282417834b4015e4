#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/command_line.h"

namespace imgd::cli {

// Each adds one command (with its help) to `app`. The context outlives the app.
void AddSubmitCommand(Command app, Context& context);
void AddJobsCommand(Command app, Context& context);
void AddShowCommand(Command app, Context& context);
void AddExplainCommand(Command app, Context& context);
void AddTopCommand(Command app, Context& context);
void AddWatchCommand(Command app, Context& context);
void AddWaitCommand(Command app, Context& context);
void AddLogsCommand(Command app, Context& context);
void AddAttachCommand(Command app, Context& context);
void AddShellCommand(Command app, Context& context);
void AddForwardCommand(Command app, Context& context);
void AddCancelCommand(Command app, Context& context);
void AddDeleteCommand(Command app, Context& context);
void AddPauseCommand(Command app, Context& context);
void AddResumeCommand(Command app, Context& context);
void AddMoveCommand(Command app, Context& context);
void AddPriorityCommand(Command app, Context& context);
void AddExtendCommand(Command app, Context& context);
void AddSweepCommand(Command app, Context& context);
void AddRerunCommand(Command app, Context& context);
void AddEventsCommand(Command app, Context& context);
void AddMetricsCommand(Command app, Context& context);
void AddNodeCommands(Command app, Context& context);
void AddJoinCommands(Command node, Context& context);  // below `node`
void AddProfileCommand(Command app, Context& context);
void AddNodesCommand(Command app, Context& context);
void AddUsageCommand(Command app, Context& context);
void AddAdminCommands(Command app, Context& context);
void AddTokenCommands(Command app, Context& context);
void AddLoginCommand(Command app, Context& context);
void AddDatasetCommands(Command app, Context& context);  // they need no daemon
void AddRecipesCommand(Command app, Context& context);   // nor does it
void AddCheckpointsCommand(Command app, Context& context);
void AddExportCommand(Command app, Context& context);
void AddModelCommands(Command app, Context& context);
void AddDoctorCommand(Command app, Context& context);

/// What a command can print: a listing also wide; events and lines, or a sentence, without.
inline const std::vector<std::string> kListingFormats = {"table", "wide", "json", "yaml"};
inline const std::vector<std::string> kPlainFormats = {"table", "json", "yaml"};

/// `-o, --output`, one of `allowed`.
void AddOutputOption(Command command, OutputFormat& format,
                     const std::vector<std::string>& allowed = kListingFormats);

/// An idempotency key of 128 random bits: no two invocations share one.
std::string NewSubmitKey();

/// The positional JOB.
void AddJobArgument(Command command, std::string& job);

}  // namespace imgd::cli
