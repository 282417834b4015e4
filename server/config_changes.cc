#include "server/config_changes.h"

namespace imgd {
namespace {

constexpr bool kAtOnce = true;
constexpr bool kAtRestart = false;

template <auto Field>
ConfigKey KeyOf(const char* name, bool at_once) {
  return {name, at_once, [](const ServerConfig& a, const ServerConfig& b) { return a.*Field == b.*Field; },
          [](ServerConfig& to, const ServerConfig& from) { to.*Field = from.*Field; }};
}

// Of TlsConfig, plain_text is a key of its own.
bool SamePlainText(const ServerConfig& a, const ServerConfig& b) {
  return a.tls.plain_text == b.tls.plain_text;
}
void TakePlainText(ServerConfig& to, const ServerConfig& from) { to.tls.plain_text = from.tls.plain_text; }

void TakeTls(ServerConfig& to, const ServerConfig& from) {
  const bool plain = to.tls.plain_text;
  to.tls = from.tls;
  to.tls.plain_text = plain;
}
bool SameTls(const ServerConfig& a, const ServerConfig& b) {
  ServerConfig taken = a;
  TakeTls(taken, b);
  return taken.tls == a.tls;
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = {
      KeyOf<&ServerConfig::listen>("listen", kAtRestart),
      {"tls", false, SameTls, TakeTls},
      {"plain_text_and_anyone_may_do_anything", false, SamePlainText, TakePlainText},
      KeyOf<&ServerConfig::ec2_join>("ec2_join", kAtOnce),
      KeyOf<&ServerConfig::state_dir>("state_dir", kAtRestart),
      KeyOf<&ServerConfig::checkpoint_dir>("checkpoint_dir", kAtOnce),
      KeyOf<&ServerConfig::heartbeat_ms>("heartbeat", kAtRestart),
      KeyOf<&ServerConfig::lost_after_ms>("lost_after", kAtOnce),
      KeyOf<&ServerConfig::preemption>("preemption", kAtOnce),
      KeyOf<&ServerConfig::fair_share_half_life_ms>("fair_share_half_life", kAtOnce),
      KeyOf<&ServerConfig::shares>("shares", kAtOnce),
      KeyOf<&ServerConfig::aging_ms>("aging", kAtOnce),
      KeyOf<&ServerConfig::quotas>("quotas", kAtOnce),
      KeyOf<&ServerConfig::currency>("currency", kAtOnce),
      KeyOf<&ServerConfig::policies>("policies", kAtOnce),
      KeyOf<&ServerConfig::commands>("commands", kAtOnce),
      KeyOf<&ServerConfig::shell>("shell", kAtOnce),
      KeyOf<&ServerConfig::shell_idle_limit_ms>("shell_idle_limit", kAtOnce),
      KeyOf<&ServerConfig::shell_sessions_per_node>("shell_sessions_per_node", kAtOnce),
      KeyOf<&ServerConfig::set_aside_after>("set_aside_after", kAtOnce),
      KeyOf<&ServerConfig::most_clock_skew_ms>("most_clock_skew", kAtOnce),
      KeyOf<&ServerConfig::log_patterns>("log_patterns", kAtOnce),
      KeyOf<&ServerConfig::built_in_log_patterns>("built_in_log_patterns", kAtOnce),
      KeyOf<&ServerConfig::start_timeout_ms>("start_timeout", kAtOnce),
      KeyOf<&ServerConfig::report_timeout_ms>("report_timeout", kAtOnce),
      KeyOf<&ServerConfig::web>("web", kAtRestart),
      KeyOf<&ServerConfig::log_level>("log_level", kAtOnce),
      KeyOf<&ServerConfig::log_kept_bytes>("log_kept_bytes", kAtRestart),
      KeyOf<&ServerConfig::events_kept>("events_kept", kAtOnce),
      KeyOf<&ServerConfig::events_kept_for_ms>("events_kept_for", kAtOnce),
      KeyOf<&ServerConfig::jobs_kept_for_ms>("jobs_kept_for", kAtOnce),
      KeyOf<&ServerConfig::lost_nodes_kept_for_ms>("lost_nodes_kept_for", kAtOnce),
      KeyOf<&ServerConfig::metrics_kept_for_ms>("metrics_kept_for", kAtOnce),
      KeyOf<&ServerConfig::logs_kept_for_ms>("logs_kept_for", kAtOnce),
      KeyOf<&ServerConfig::checkpoints_kept_for_ms>("checkpoints_kept_for", kAtOnce),
      KeyOf<&ServerConfig::logs_total_bytes>("logs_total_bytes", kAtOnce),
      KeyOf<&ServerConfig::metrics_total_bytes>("metrics_total_bytes", kAtOnce),
      KeyOf<&ServerConfig::checkpoints_total_bytes>("checkpoints_total_bytes", kAtOnce),
      KeyOf<&ServerConfig::best_checkpoints_kept>("best_checkpoints_kept", kAtOnce),
      KeyOf<&ServerConfig::notifications>("notifications", kAtRestart),
  };
  return keys;
}

ConfigChanges TakeChanges(ServerConfig& config, const ServerConfig& fresh) {
  ConfigChanges out;
  for (const auto& key : ConfigKeys()) {
    if (key.same(config, fresh)) continue;
    (key.at_once ? out.changed : out.need_restart).push_back(key.name);
    if (key.at_once) key.take(config, fresh);
  }
  return out;
}

}  // namespace imgd
