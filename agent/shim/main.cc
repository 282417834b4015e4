// imgagent-shim RUN_DIR LOCK_FD [MASTER_FD]: keeps one run's ranks. Started by imgagent, not by people.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/shim/shim.h"
#include "common/version.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("imgagent-shim %s\n", imgd::kVersion);
    return 0;
  }
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: imgagent-shim RUN_DIR LOCK_FD [MASTER_FD]; imgagent starts it\n");
    return 2;
  }
  return imgd::ShimMain(
      {.run_dir = argv[1], .master_fd = argc == 4 ? std::atoi(argv[3]) : -1, .lock_fd = std::atoi(argv[2])});
}
