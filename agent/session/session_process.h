#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// Size of a terminal, characters.
struct TerminalSize {
  uint16_t rows = 24;
  uint16_t columns = 80;
};

/// What a session runs.
struct SessionProgram {
  std::string program;                   ///< by its path, or a name to be found in PATH
  std::vector<std::string> arguments;    ///< argv, from argv[0] on
  std::vector<std::string> environment;  ///< "NAME=value"
  std::filesystem::path folder;          ///< to run in
  std::filesystem::path run_dir;         ///< of the run whose user it is and whose paths it sees; or empty
  std::optional<TerminalSize> terminal;  ///< it gets one of this size; nothing: pipes
};

/// A session's keeper, which runs, and this end of the program's streams, none of which blocks. Closing
/// `control` ends the program and all that it began.
struct SessionProcess {
  UniqueFd input;
  UniqueFd output;   ///< with a terminal, of the standard error too
  UniqueFd error;    ///< pipes only
  UniqueFd control;  ///< as session_keeper.h has it
  pid_t keeper = 0;  ///< a child of this process
  bool terminal = false;
};

/// How long what a session began may take to obey SIGHUP.
inline constexpr Duration kSessionGrace = std::chrono::seconds(5);

/// Starts the program under a keeper (imgagent-shim). What keeps the program from running comes on `control`.
/// Errors: no terminal, pipe or process to be had; a folder that is not there.
Result<SessionProcess> StartSessionProcess(const std::filesystem::path& keeper, const SessionProgram& program,
                                           Duration grace = kSessionGrace);

/// Gives the terminal another size, which its programs are told of.
void ResizeTerminal(const SessionProcess& process, TerminalSize size);

/// The environment of sessions on the node itself: the agent's without what is meant for itself, and with
/// HOME, USER, LOGNAME and SHELL.
std::vector<std::string> NodeSessionEnvironment(const std::vector<std::string>& inherited);

/// The same beside a rank's process: the rank's own, without IMGD_RUN_DIR and IMGD_MASTER_FD, so that a
/// trainer that is tried there is a run of its own. Errors: when the process is gone or somebody else's.
Result<std::vector<std::string>> RankSessionEnvironment(pid_t rank);

/// The folder that a process runs in; "/" where that is not there any more.
std::filesystem::path FolderOf(pid_t pid);

/// The shell of the user that this process runs as; a usual one where that can't be used.
std::string UsersShell();

/// The value in "NAME=value" entries; empty where there is none.
std::string ValueIn(const std::vector<std::string>& environment, std::string_view name);
/// Sets or replaces it.
void SetIn(std::vector<std::string>& environment, std::string_view name, std::string_view value);

}  // namespace imgd
