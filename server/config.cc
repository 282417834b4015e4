#include "server/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "common/url.h"
#include "common/yaml.h"
#include "server/core/folders.h"

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

Status CheckWeb(const WebConfig& web) {
  if (web.listen.empty()) return {};
  if (!IsHostPort(web.listen)) {
    return Fail(ErrorCode::kInvalidArgument,
                "web.listen: found '{}'; HOST:PORT is expected, with a port of 0 to 65535, or '' for none",
                web.listen);
  }
  if (web.certificate.empty() != web.key.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "web: a {} is named without a {}",
                web.key.empty() ? "certificate" : "key", web.key.empty() ? "key" : "certificate");
  }
  if (!web.plain_http) return {};
  if (!web.certificate.empty())
    return Fail(ErrorCode::kInvalidArgument, "web: plain_http and a certificate exclude each other");
  if (IsLoopbackHost(web.listen.substr(0, web.listen.rfind(':')))) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "web.plain_http: {} is no loopback address; tokens would cross the network in plain text",
              web.listen);
}

Status CheckTls(const ServerConfig& config) {
  const TlsConfig& tls = config.tls;
  const auto pair = [](const std::string& one, const std::string& other, const char* names) -> Status {
    if (one.empty() == other.empty()) return {};
    return Fail(ErrorCode::kInvalidArgument, "tls: {} are given together", names);
  };
  IMGD_TRY(pair(tls.ca_certificate, tls.ca_key, "ca_certificate and ca_key"));
  IMGD_TRY(pair(tls.certificate, tls.key, "certificate and key"));
  if (tls.plain_text && tls.Wanted()) {
    return Fail(ErrorCode::kInvalidArgument,
                "plain_text_and_anyone_may_do_anything excludes certificates and tls.on_loopback");
  }
  constexpr int64_t kDayMs = 24LL * 3600 * 1000;
  if (tls.node_certificate_ms < 1'000 || tls.node_certificate_ms > kDayMs) {
    return Fail(ErrorCode::kInvalidArgument, "tls.node_certificate: found {} ms; 1 s to 24 h is allowed",
                tls.node_certificate_ms);
  }
  if (tls.server_certificate_ms < 1'000 || tls.server_certificate_ms > 90 * kDayMs) {
    return Fail(ErrorCode::kInvalidArgument, "tls.server_certificate: found {} ms; 1 s to 90 d is allowed",
                tls.server_certificate_ms);
  }
  return {};
}

void ReadTls(YamlMap& root, TlsConfig& tls) {
  if (const auto plain = root.Bool("plain_text_and_anyone_may_do_anything")) tls.plain_text = *plain;
  if (!root.Has("tls")) return;
  auto map = root.Child("tls");
  const auto take = [&map](const char* key, std::string& field) {
    if (auto value = map.String(key)) field = std::move(*value);
  };
  if (const auto on = map.Bool("on_loopback")) tls.on_loopback = *on;
  take("ca_certificate", tls.ca_certificate);
  take("ca_key", tls.ca_key);
  take("certificate", tls.certificate);
  take("key", tls.key);
  if (auto names = map.StringList("names")) tls.names = std::move(*names);
  if (const auto lasts = map.DurationMs("server_certificate")) tls.server_certificate_ms = *lasts;
  if (const auto lasts = map.DurationMs("node_certificate")) tls.node_certificate_ms = *lasts;
  map.Finish();
}

Budget ReadBudget(YamlMap& quota, std::string_view key) {
  Budget out;
  if (!quota.Has(key)) return out;
  auto map = quota.Child(key);
  const auto most = map.Double("most", 0.001, 1e12);
  if (most) out.most = *most;
  if (!map.Has("most")) map.AddError("most", "found nothing; a number is needed");
  const auto per = map.Choice("per", {"day", "week", "month", "total"});
  if (per == "day") out.per = Period::kDay;
  if (per == "week") out.per = Period::kWeek;
  if (per == "total") out.per = Period::kTotal;
  map.Finish();
  return out;
}

Quota ReadQuota(YamlMap& map, std::string_view key) {
  auto quota = map.Child(key);
  Quota out;
  if (const auto devices = quota.Int("devices", 1, UINT32_MAX)) out.devices = static_cast<uint32_t>(*devices);
  if (const auto queued = quota.Int("queued", 1, UINT32_MAX)) out.queued = static_cast<uint32_t>(*queued);
  out.device_hours = ReadBudget(quota, "device_hours");
  out.spend = ReadBudget(quota, "spend");
  quota.Finish();
  return out;
}

void ReadQuotas(YamlMap& root, Quotas& quotas) {
  if (!root.Has("quotas")) return;
  auto map = root.Child("quotas");
  const auto named = [&map](std::string_view key) {
    std::map<std::string, Quota> out;
    auto names = map.Child(key);
    for (const auto& name : names.Keys()) out[name] = ReadQuota(names, name);
    names.Finish();
    return out;
  };
  quotas.user = ReadQuota(map, "user");
  quotas.users = named("users");
  quotas.project = ReadQuota(map, "project");
  quotas.projects = named("projects");
  map.Finish();
}

void ReadShares(YamlMap& root, Shares& shares) {
  if (!root.Has("shares")) return;
  auto map = root.Child("shares");
  const auto named = [&map](std::string_view key) {
    std::map<std::string, double> out;
    auto names = map.Child(key);
    for (const auto& name : names.Keys()) {
      if (const auto share = names.Double(name, 0.001, 1'000'000)) out[name] = *share;
    }
    names.Finish();
    return out;
  };
  shares.users = named("users");
  shares.projects = named("projects");
  map.Finish();
}

LogPattern ReadLogPattern(YamlMap& map) {
  LogPattern pattern;
  if (const auto name = map.String("name")) pattern.name = *name;
  if (const auto match = map.String("match")) pattern.match = *match;
  if (const auto label = map.String("label")) pattern.label = *label;
  const auto action = map.Choice("action", {"exclude_node", "no_retry", "retry", "label", "ignore"});
  if (action == "exclude_node") pattern.action = PatternAction::kExcludeNode;
  if (action == "no_retry") pattern.action = PatternAction::kNoRetry;
  if (action == "retry") pattern.action = PatternAction::kRetry;
  pattern.ignored = action == "ignore";
  map.Finish();
  const auto& known = BuiltInPatterns();
  const bool built_in = std::any_of(
      known.begin(), known.end(), [&pattern](const LogPattern& other) { return other.name == pattern.name; });
  if (pattern.name.empty() || pattern.name.size() > 64) {
    map.AddError("name", "found no name of 1 to 64 bytes, by which failures show the pattern");
  } else if (pattern.match.empty() && !built_in) {
    std::vector<std::string> names;
    for (const auto& other : known) names.push_back(other.name);
    map.AddError("match",
                 fmt::format("found no regular expression for '{}', which is not built in", pattern.name),
                 fmt::format("built in: {}", fmt::join(names, ", ")));
  } else if (const auto why = WhyNoPattern(pattern.match); !pattern.match.empty() && !why.empty()) {
    map.AddError("match", fmt::format("found '{}', which can't be used: {}", pattern.match, why),
                 "a regular expression of RE2 is expected");
  }
  return pattern;
}

void ReadLogPatterns(YamlMap& root, std::vector<LogPattern>& patterns) {
  if (!root.Has("log_patterns")) return;
  patterns.clear();
  for (auto& map : root.Children("log_patterns")) {
    LogPattern pattern = ReadLogPattern(map);
    const bool twice = std::any_of(patterns.begin(), patterns.end(), [&pattern](const LogPattern& other) {
      return other.name == pattern.name;
    });
    if (twice) map.AddError("name", fmt::format("found '{}' a second time; names are unique", pattern.name));
    patterns.push_back(std::move(pattern));
  }
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
  take(config.report_timeout_ms, root->DurationMs("report_timeout"));
  take(config.preemption, root->Bool("preemption"));
  take(config.fair_share_half_life_ms, root->DurationMs("fair_share_half_life"));
  take(config.aging_ms, root->DurationMs("aging"));
  ReadShares(*root, config.shares);
  ReadQuotas(*root, config.quotas);
  take(config.currency, root->String("currency"));
  if (root->Has("policies")) config.policies = ReadPolicies(*root);
  take(config.commands, root->Bool("commands"));
  take(config.shell, root->Bool("shell"));
  take(config.shell_idle_limit_ms, root->DurationMs("shell_idle_limit"));
  take(config.shell_sessions_per_node, root->Int("shell_sessions_per_node", 1, 256));
  take(config.set_aside_after, root->Int("set_aside_after", 0, 1000));
  take(config.most_clock_skew_ms, root->DurationMs("most_clock_skew"));
  take(config.built_in_log_patterns, root->Bool("built_in_log_patterns"));
  ReadLogPatterns(*root, config.log_patterns);
  take(config.log_level, root->Choice("log_level", {"trace", "debug", "info", "warn", "error"}));
  take(config.log_kept_bytes, root->Int("log_kept_bytes", 1 << 16, int64_t{1} << 50));
  take(config.events_kept, root->Int("events_kept", 1, 100'000'000));
  take(config.events_kept_for_ms, root->DurationWithUnitMs("events_kept_for"));
  take(config.jobs_kept_for_ms, root->DurationWithUnitMs("jobs_kept_for"));
  take(config.metrics_kept_for_ms, root->DurationWithUnitMs("metrics_kept_for"));
  take(config.logs_kept_for_ms, root->DurationWithUnitMs("logs_kept_for"));
  take(config.checkpoints_kept_for_ms, root->DurationWithUnitMs("checkpoints_kept_for"));
  for (const auto& [key, field] :
       {std::pair("logs_total_bytes", &ServerConfig::logs_total_bytes),
        std::pair("metrics_total_bytes", &ServerConfig::metrics_total_bytes),
        std::pair("checkpoints_total_bytes", &ServerConfig::checkpoints_total_bytes)})
    take(config.*field, root->Int(key, 0, int64_t{1} << 60));
  take(config.best_checkpoints_kept, root->Bool("best_checkpoints_kept"));
  take(config.lost_nodes_kept_for_ms, root->DurationWithUnitMs("lost_nodes_kept_for"));
  if (root->Has("notifications")) config.notifications = ReadNotifications(*root);
  ReadTls(*root, config.tls);
  if (root->Has("ec2_join")) config.ec2_join = ReadEc2Join(*root);
  auto web = root->Child("web");
  take(config.web.listen, web.String("listen"));
  take(config.web.certificate, web.String("certificate"));
  take(config.web.key, web.String("key"));
  take(config.web.plain_http, web.Bool("plain_http"));
  web.Finish();
  root->Finish();
  if (auto errors = root->Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  return config;
}

Status CheckServerConfig(const ServerConfig& config) {
  if (config.state_dir.empty() || config.state_dir.front() != '/') {
    return Fail(ErrorCode::kInvalidArgument, "state_dir: found '{}'; an absolute path is needed",
                config.state_dir);
  }
  const std::string& folder = config.checkpoint_dir;
  if (!folder.empty() && folder.front() != '/' && !IsInBucket(folder)) {
    return Fail(ErrorCode::kInvalidArgument,
                "checkpoint_dir: found '{}'; an absolute path is needed, the same on all nodes, or "
                "s3://bucket/prefix",
                folder);
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
  if (config.report_timeout_ms < 1'000) {
    return Fail(ErrorCode::kInvalidArgument,
                "report_timeout: found {} ms; at least 1 s is needed, and 30 s pass between signs of life",
                config.report_timeout_ms);
  }
  IMGD_TRY(CheckTls(config));
  IMGD_TRY(CheckEc2Join(config.ec2_join));
  return CheckWeb(config.web);
}

bool ServerConfig::UsesTls() const {
  if (tls.plain_text) return false;
  const std::string host = listen.substr(0, listen.rfind(':'));
  const bool plain = host == "127.0.0.1" || host == "[::1]" || host == "localhost";
  return tls.Wanted() || !plain;
}

}  // namespace imgd
