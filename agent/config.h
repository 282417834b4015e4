#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/health.h"
#include "agent/projects.h"
#include "common/error.h"

namespace imgd {

/// Settings of an agent; deploy/agent.yaml has every key with a comment.
struct Config {
  std::string server = "127.0.0.1:7650";  ///< with http:// or https:// before it until CompleteConfig()
  bool tls = false;                       ///< CompleteConfig() says
  std::filesystem::path token_file;       ///< of a join token; empty: none
  bool join_as_ec2 = false;               ///< as the EC2 instance that this machine is
  std::string ca_hash;                    ///< SHA-256 of imgd's CA for that; CompleteConfig() makes it plain
  std::string node;                       ///< empty: the machine's name; of an EC2 instance its id
  std::filesystem::path state_dir = "/var/lib/imgagent";
  std::string address;  ///< empty: the one that packets to the server leave from
  uint32_t cpu_slots = 0;
  std::filesystem::path trainer;  ///< empty: imgtrain beside this program, else in PATH
  std::vector<std::filesystem::path> shared_folders;
  std::map<std::string, std::string> labels;
  double price_per_hour = 0;  ///< of the whole node
  std::string nvml;           ///< NVML's library; empty: the system's, "none": look for no GPU
  Projects projects;          ///< what their jobs may have here
  std::string log_level = "info";
  uint64_t run_log_limit_bytes = 256ULL << 20;
  bool use_cgroup = true;
  int64_t stop_after_disconnect_ms = 0;  ///< 0: never
  HealthLimits health;
  std::string spot_notices = "auto";  ///< as NoticesFrom() takes it
  bool sessions = true;               ///< people that imgd lets in may have a shell here
  std::string tensorboard;            ///< its program; empty: that of this name in PATH
  std::string metrics_listen;  ///< HOST:PORT of /metrics; "relay": imgd asks; empty or "off": not served
  bool metrics_in_plain_text = false;  ///< metrics_listen may be an address that other machines reach
};

/// Reads agent.yaml over `config`. On failure: every error, with its place.
tl::expected<Config, std::vector<Error>> ParseConfig(std::string_view text, const std::string& file,
                                                     Config config);

/// Fills in what was left empty and checks the rest.
/// Errors: an address, node name or number of slots that can't be, a trainer that is no program here.
Result<Config> CompleteConfig(Config config);

}  // namespace imgd
