#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "server/auth/ec2_config.h"
#include "server/core/shares.h"
#include "server/engine/log_patterns.h"
#include "server/notify/notify_config.h"
#include "server/policy/policy.h"

namespace imgd {

/// How the daemon serves HTTP.
struct WebConfig {
  std::string listen = "127.0.0.1:7651";  ///< empty: not at all
  std::string certificate;                ///< PEM file; empty: one that imgd makes
  std::string key;                        ///< PEM file; given with the certificate
  bool plain_http = false;                ///< no TLS; on loopback addresses only
  bool operator==(const WebConfig&) const = default;
};

/// How the daemon proves who it is, and who may talk to it by gRPC.
struct TlsConfig {
  bool on_loopback = false;        ///< TLS also where only this machine's users can connect
  std::string ca_certificate;      ///< PEM file; empty: one that imgd makes
  std::string ca_key;              ///< PEM file; given with the CA's certificate
  std::string certificate;         ///< PEM file of the server's, with its chain; empty: one by the CA
  std::string key;                 ///< PEM file; given with the certificate
  std::vector<std::string> names;  ///< what clients call this machine, beside its own names and addresses
  int64_t server_certificate_ms = 7LL * 24 * 3600 * 1000;
  int64_t node_certificate_ms = 24LL * 3600 * 1000;
  bool plain_text = false;  ///< none at all, wherever it listens
  bool operator==(const TlsConfig&) const = default;

  /// Whether an operator said anything that is of use with TLS alone.
  bool Wanted() const { return on_loopback || !ca_certificate.empty() || !certificate.empty(); }
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
  bool commands = false;                            ///< jobs may be any program
  bool shell = false;                               ///< people may have sessions on nodes
  int64_t shell_idle_limit_ms = 4LL * 3600 * 1000;  ///< 0: for ever
  int64_t shell_sessions_per_node = 16;
  int64_t fair_share_half_life_ms = 7LL * 24 * 3600 * 1000;  ///< 0: age alone decides
  Shares shares;
  int64_t aging_ms = 24LL * 3600 * 1000;  ///< that a job waits for a step of priority; 0: none is gained
  std::string log_level = "info";
  int64_t log_kept_bytes = 256ll << 20;
  int64_t events_kept = 100'000;
  int64_t events_kept_for_ms = 30ll * 24 * 3600 * 1000;
  // After a job's end; 0: for ever.
  int64_t jobs_kept_for_ms = 0;
  int64_t metrics_kept_for_ms = 0;
  int64_t logs_kept_for_ms = 0;
  int64_t checkpoints_kept_for_ms = 0;
  // Of all jobs together; 0: without a limit.
  int64_t logs_total_bytes = 0;
  int64_t metrics_total_bytes = 0;
  int64_t checkpoints_total_bytes = 0;
  bool best_checkpoints_kept = true;                        ///< the best of each job stays, however old it is
  int64_t lost_nodes_kept_for_ms = 7ll * 24 * 3600 * 1000;  ///< since they were last heard; 0: for ever
  int64_t set_aside_after = 3;           ///< different jobs that fail on a node in a row; 0: never
  int64_t most_clock_skew_ms = 10'000;   ///< of nodes; 0: it does not matter
  std::vector<LogPattern> log_patterns;  ///< the operator's own
  bool built_in_log_patterns = true;
  NotifyConfig notifications;
  WebConfig web;
  TlsConfig tls;
  Ec2JoinConfig ec2_join;

  /// Whether gRPC is served by TLS: on every address but 127.0.0.1 and ::1, unless it is plain_text.
  bool UsesTls() const;
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
