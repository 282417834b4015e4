#include "agent/config.h"

#include <unistd.h>

#include <cerrno>

#include "agent/network.h"
#include "agent/notice.h"
#include "agent/program.h"
#include "common/labels.h"
#include "common/tls/join_token.h"
#include "common/url.h"
#include "common/yaml.h"

namespace imgd {
namespace {

constexpr uint32_t kMostCpuSlots = 1024;

/// Every job that is placed here would fail on a trainer that can't be run.
Status CheckProgram(const std::filesystem::path& trainer) {
  if (::access(trainer.c_str(), X_OK) != 0) {
    return FailErrno(errno, fmt::format("trainer '{}' can't be run", trainer.native()));
  }
  if (std::filesystem::is_regular_file(trainer)) return {};
  return Fail(ErrorCode::kInvalidArgument, "trainer '{}' is not a program", trainer.native());
}

bool IsNodeName(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 253 && name.find_first_not_of(kAllowed) == std::string::npos;
}

/// Of a config whose server is known to be spoken to by TLS or not.
Status CompleteJoin(Config& config) {
  if (!config.join_as_ec2) return {};
  if (!config.tls)
    return Fail(ErrorCode::kInvalidArgument,
                "join: ec2 needs TLS, and {} is spoken to in plain text, where nodes join without more",
                config.server);
  if (config.ca_hash.empty()) {
    return tl::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                .message =
                                    "join: ec2 needs ca_hash, by which imgd is known before anything is "
                                    "sent to it",
                                .hint = "imgd's log has it at its start (sha256=...); it is no secret"});
  }
  IMGD_ASSIGN(config.ca_hash, tls::ParseCaHash(config.ca_hash));
  return {};
}

Status CheckMetrics(const Config& config) {
  if (config.metrics_listen.empty() || config.metrics_listen == "relay") return {};
  const auto where = SplitHostPort(config.metrics_listen, 0);
  if (!where) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "metrics_listen: found '{}'; HOST:PORT is expected, with a port of 0 to 65535, or relay, or off",
        config.metrics_listen);
  }
  if (config.metrics_in_plain_text || IsLoopbackHost(where->host)) return {};
  auto refused =
      Fail(ErrorCode::kInvalidArgument,
           "metrics_listen: others than this machine reach {}, where /metrics has no password and no "
           "encryption",
           config.metrics_listen);
  refused.value().hint =
      "metrics_listen: relay, and imgd shows them by TLS; or metrics_in_plain_text: true "
      "(--metrics-in-plain-text)";
  return refused;
}

std::string HostName() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "";
  return name;
}

}  // namespace

tl::expected<Config, std::vector<Error>> ParseConfig(std::string_view text, const std::string& file,
                                                     Config config) {
  auto parsed = YamlMap::Parse(text, file);
  if (!parsed) return tl::unexpected(std::vector<Error>{std::move(parsed).error()});
  YamlMap& yaml = *parsed;
  if (auto v = yaml.String("server")) config.server = *v;
  if (auto v = yaml.String("token_file")) config.token_file = *v;
  if (auto v = yaml.Choice("join", {"token", "ec2"})) config.join_as_ec2 = *v == "ec2";
  if (auto v = yaml.String("ca_hash")) config.ca_hash = *v;
  if (auto v = yaml.String("node")) config.node = *v;
  if (auto v = yaml.String("state_dir")) config.state_dir = *v;
  if (auto v = yaml.String("address")) config.address = *v;
  if (auto v = yaml.Int("cpu_slots", 0, kMostCpuSlots)) config.cpu_slots = static_cast<uint32_t>(*v);
  if (auto v = yaml.String("trainer")) config.trainer = *v;
  if (auto v = yaml.StringList("shared_folders")) config.shared_folders.assign(v->begin(), v->end());
  if (auto v = yaml.Double("price_per_hour", 0, 1e9)) config.price_per_hour = *v;
  if (yaml.Has("labels")) config.labels = ReadLabels(yaml, "labels");
  if (auto v = yaml.String("nvml")) config.nvml = *v;
  if (auto v = yaml.Choice("log_level", {"trace", "debug", "info", "warn", "error"})) config.log_level = *v;
  if (auto v = yaml.Int("run_log_limit_mib", 1, 1 << 20)) {
    config.run_log_limit_bytes = static_cast<uint64_t>(*v) << 20;
  }
  if (auto v = yaml.Choice("cgroup", {"auto", "off"})) config.use_cgroup = *v == "auto";
  if (auto v = yaml.DurationMs("stop_after_disconnect")) config.stop_after_disconnect_ms = *v;
  if (auto v = yaml.String("metrics_listen")) config.metrics_listen = *v;
  if (auto v = yaml.Bool("metrics_in_plain_text")) config.metrics_in_plain_text = *v;
  if (auto v = yaml.String("spot_notices")) config.spot_notices = *v;
  if (auto v = yaml.Bool("sessions")) config.sessions = *v;
  if (auto v = yaml.String("tensorboard")) config.tensorboard = *v;
  config.projects = ReadProjects(yaml);
  if (yaml.Has("health")) {
    auto health = yaml.Child("health");
    const auto mib = [&health](const char* key, uint64_t& bytes) {
      if (auto v = health.Int(key, 0, 1 << 30)) bytes = static_cast<uint64_t>(*v) << 20;
    };
    mib("min_disk_free_mib", config.health.disk_free_bytes);
    mib("min_memory_free_mib", config.health.memory_free_bytes);
    if (auto v = health.Int("min_gpu_memory_free_percent", 0, 99))
      config.health.gpu_memory_free_percent = static_cast<uint32_t>(*v);
    health.Finish();
  }
  yaml.Finish();
  if (auto errors = yaml.Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  return config;
}

Result<Config> CompleteConfig(Config config) {
  GrpcAddress server = SplitGrpcAddress(config.server);
  IMGD_TRY(ParseHostPort(server.address));
  config.server = std::move(server.address);
  // A join token is of an imgd that is spoken to by TLS.
  config.tls = server.tls || (!server.is_said && !config.token_file.empty());
  if (config.cpu_slots > kMostCpuSlots) {
    return Fail(ErrorCode::kInvalidArgument, "cpu_slots: found {}; 0 to {} are allowed", config.cpu_slots,
                kMostCpuSlots);
  }
  if (config.metrics_listen == "off") config.metrics_listen.clear();
  IMGD_TRY(CheckMetrics(config));
  IMGD_TRY(NoticesFrom(config.spot_notices));
  IMGD_TRY(CompleteJoin(config));
  const bool named_later = config.node.empty() && config.join_as_ec2;
  if (config.node.empty() && !named_later) config.node = HostName();
  if (!named_later && !IsNodeName(config.node)) {
    return Fail(ErrorCode::kInvalidArgument, "node name '{}': 1 to 253 of A-Z a-z 0-9 . _ - are allowed",
                config.node);
  }
  if (config.trainer.empty()) {
    config.trainer = FindProgram("imgtrain");
    if (config.trainer.empty()) {
      return Fail(ErrorCode::kNotFound,
                  "no imgtrain beside {} or in PATH; --trainer PATH names the trainer's program",
                  OwnProgram().native());
    }
  }
  config.trainer = std::filesystem::absolute(config.trainer);
  IMGD_TRY(CheckProgram(config.trainer));
  IMGD_ASSIGN(config.projects, CompleteProjects(std::move(config.projects), config.trainer));
  // Ranks have another working directory, and find the run by these paths.
  config.state_dir = std::filesystem::absolute(config.state_dir).lexically_normal();
  return config;
}

}  // namespace imgd
