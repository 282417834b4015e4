#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "server/core/shares.h"
#include "server/engine/log_patterns.h"
#include "server/policy/policy.h"

namespace imgd {

/// How the daemon serves HTTP.
struct WebConfig {
  std::string listen = "127.0.0.1:7651";  ///< empty: not at all
  std::string certificate;                ///< PEM file; empty: one that imgd makes
  std::string key;                        ///< PEM file; given with the certificate
  bool plain_http = false;                ///< no TLS; on loopback addresses only
};

/// The daemon's configuration. deploy/imgd.yaml tells of each key.
struct ServerConfig {
  std::string listen = "127.0.0.1:7650";
  std::string state_dir = "/var/lib/imgd";
  std::string checkpoint_dir;  ///< empty for `state_dir`/checkpoints
  int64_t heartbeat_ms = 3'000;
  int64_t lost_after_ms = 45'000;
  int64_t start_timeout_ms = 600'000;
  int64_t report_timeout_ms = 300'000;
  bool preemption = true;
  Quotas quotas;
  std::string currency;  ///< of nodes' prices, for people
  Policies policies;
  bool commands = false;                                     ///< jobs may be any program
  int64_t fair_share_half_life_ms = 7LL * 24 * 3600 * 1000;  ///< 0: age alone decides
  std::string log_level = "info";
  int64_t log_kept_bytes = 256ll << 20;
  int64_t events_kept = 100'000;
  int64_t events_kept_for_ms = 30ll * 24 * 3600 * 1000;
  int64_t set_aside_after = 3;           ///< different jobs that fail on a node in a row; 0: never
  int64_t most_clock_skew_ms = 10'000;   ///< of nodes; 0: it does not matter
  std::vector<LogPattern> log_patterns;  ///< the operator's own
  bool built_in_log_patterns = true;
  WebConfig web;

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
