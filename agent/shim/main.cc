// imgagent-shim RUN_DIR LOCK_FD [MASTER_FD]: keeps one run's ranks.
// imgagent-shim --session tty|pipes GRACE_MS RUN_DIR PROGRAM ARGV0 [ARGUMENT...]: keeps one session's
// program. Started by imgagent, not by people.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/shim/session_keeper.h"
#include "agent/shim/shim.h"
#include "common/version.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("imgagent-shim %s\n", imgd::kVersion);
    return 0;
  }
  if (argc >= 7 && std::strcmp(argv[1], "--session") == 0) {
    return imgd::SessionKeeperMain({.terminal = std::strcmp(argv[2], "tty") == 0,
                                    .grace = std::chrono::milliseconds(std::atoi(argv[3])),
                                    .run_dir = argv[4],
                                    .program = argv[5],
                                    .arguments = {argv + 6, argv + argc}});
  }
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: imgagent-shim RUN_DIR LOCK_FD [MASTER_FD]; imgagent starts it\n");
    return 2;
  }
  return imgd::ShimMain(
      {.run_dir = argv[1], .master_fd = argc == 4 ? std::atoi(argv[3]) : -1, .lock_fd = std::atoi(argv[2])});
}
