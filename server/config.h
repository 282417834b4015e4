#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd {

/// The daemon's configuration. deploy/imgd.yaml tells of each key.
struct ServerConfig {
  std::string listen = "127.0.0.1:7650";
  std::string state_dir = "/var/lib/imgd";
  std::string checkpoint_dir;  ///< empty for `state_dir`/checkpoints
  int64_t heartbeat_ms = 3'000;
  int64_t lost_after_ms = 45'000;
  int64_t start_timeout_ms = 600'000;
  std::string log_level = "info";
  int64_t log_kept_bytes = 256ll << 20;

  std::string CheckpointDir() const {
    return checkpoint_dir.empty() ? state_dir + "/checkpoints" : checkpoint_dir;
  }
};

/// Reads the file's text over `base`. `file` names it in errors. On failure: every error.
tl::expected<ServerConfig, std::vector<Error>> ParseServerConfig(std::string_view text,
                                                                 const std::string& file,
                                                                 ServerConfig base = {});

/// Checks what is wrong only in the whole, once the file and the flags are read.
Status CheckServerConfig(const ServerConfig& config);

}  // namespace imgd
