#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/clock.h"

namespace imgd {

// What the keeper says to the agent on their socket, one message each: "started PID", "failed ERRNO" in its
// place, and last of all "ended EXIT_CODE SIGNAL", once no process of the session is left.
inline constexpr const char* kKeeperStarted = "started";
inline constexpr const char* kKeeperFailed = "failed";
inline constexpr const char* kKeeperEnded = "ended";

/// The descriptor that `imgagent-shim --session` has the socket as (SOCK_SEQPACKET).
inline constexpr int kKeeperSocketFd = 3;

/// And a file with the program's environment, "NAME=value" and a NUL each. The keeper's own is another: what
/// a job has its programs load (LD_PRELOAD, LD_LIBRARY_PATH) is not for what looks after them.
inline constexpr int kKeeperEnvironmentFd = 4;

/// What `imgagent-shim --session` is called with.
struct SessionKeeperOptions {
  bool terminal = false;          ///< standard input is a terminal, which becomes the program's own
  Duration grace{};               ///< between SIGHUP and SIGKILL
  std::filesystem::path run_dir;  ///< of the run whose user it is and whose paths it sees; empty: the agent's
  std::string program;            ///< by its path, or a name to be found in PATH
  std::vector<std::string> arguments;         ///< argv, from argv[0] on
  std::vector<std::string> environment = {};  ///< of the program: "NAME=value"
};

/// Runs a session's program with this process's standard streams and folder and the environment that
/// kKeeperEnvironmentFd has, in a session (as
/// setsid(2) has it) of its own, and leaves nothing of it behind: when the program has ended, or the agent's
/// end of the socket is closed, whatever it began gets SIGHUP, and SIGKILL after the grace time. So it is
/// also when the agent is killed.
///
/// Returns the exit code for the calling process, which must be single-threaded.
int SessionKeeperMain(SessionKeeperOptions options);

}  // namespace imgd
