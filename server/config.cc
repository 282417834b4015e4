#include "server/config.h"

#include <charconv>

#include "common/yaml.h"

namespace imgd {
namespace {

bool IsHostPort(const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const char* const end = address.data() + address.size();
  uint16_t port = 0;
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
  return error == std::errc() && rest == end;
}

}  // namespace

tl::expected<ServerConfig, std::vector<Error>> ParseServerConfig(std::string_view text,
                                                                 const std::string& file,
                                                                 ServerConfig config) {
  auto root = YamlMap::Parse(text, file);
  if (!root) return tl::unexpected(std::vector<Error>{root.error()});
  const auto take = [](auto& field, auto value) {
    if (value) field = std::move(*value);
  };
  take(config.listen, root->String("listen"));
  take(config.state_dir, root->String("state_dir"));
  take(config.checkpoint_dir, root->String("checkpoint_dir"));
  take(config.heartbeat_ms, root->DurationMs("heartbeat"));
  take(config.lost_after_ms, root->DurationMs("lost_after"));
  take(config.start_timeout_ms, root->DurationMs("start_timeout"));
  take(config.log_level, root->Choice("log_level", {"trace", "debug", "info", "warn", "error"}));
  take(config.log_kept_bytes, root->Int("log_kept_bytes", 1 << 16, int64_t{1} << 50));
  root->Finish();
  if (auto errors = root->Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  return config;
}

Status CheckServerConfig(const ServerConfig& config) {
  if (config.state_dir.empty() || config.state_dir.front() != '/') {
    return Fail(ErrorCode::kInvalidArgument, "state_dir: found '{}'; an absolute path is needed",
                config.state_dir);
  }
  if (!config.checkpoint_dir.empty() && config.checkpoint_dir.front() != '/') {
    return Fail(ErrorCode::kInvalidArgument,
                "checkpoint_dir: found '{}'; an absolute path is needed, the same on all nodes",
                config.checkpoint_dir);
  }
  if (!IsHostPort(config.listen)) {
    return Fail(ErrorCode::kInvalidArgument,
                "listen: found '{}'; HOST:PORT is expected, with a port of 0 to 65535", config.listen);
  }
  if (config.heartbeat_ms < 10 || config.heartbeat_ms > 60'000) {
    return Fail(ErrorCode::kInvalidArgument, "heartbeat: found {} ms; 10 ms to 60 s is allowed",
                config.heartbeat_ms);
  }
  if (config.lost_after_ms <= 3 * config.heartbeat_ms) {
    return Fail(ErrorCode::kInvalidArgument,
                "lost_after: found {} ms; more than three heartbeats ({} ms) is needed, or nodes are lost "
                "for a hiccup",
                config.lost_after_ms, 3 * config.heartbeat_ms);
  }
  if (config.start_timeout_ms < 1'000) {
    return Fail(ErrorCode::kInvalidArgument, "start_timeout: found {} ms; at least 1 s is needed",
                config.start_timeout_ms);
  }
  return {};
}

}  // namespace imgd
