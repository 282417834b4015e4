#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/version.h"
#include "server/config_changes.h"
#include "server/daemon.h"

/// What the daemon's parts have of its configuration, at its start and when it is read again.
namespace imgd {

EngineSettings EngineSettingsOf(const ServerConfig& config, std::function<void()> on_tick) {
  EngineSettings settings{.state_dir = config.state_dir,
                          .log_kept_bytes = static_cast<uint64_t>(config.log_kept_bytes),
                          .events_kept = static_cast<uint64_t>(config.events_kept),
                          .events_kept_for = std::chrono::milliseconds(config.events_kept_for_ms),
                          .jobs_kept_for = std::chrono::milliseconds(config.jobs_kept_for_ms),
                          .metrics_kept_for = std::chrono::milliseconds(config.metrics_kept_for_ms),
                          .logs_kept_for = std::chrono::milliseconds(config.logs_kept_for_ms),
                          .logs_total_bytes = static_cast<uint64_t>(config.logs_total_bytes),
                          .metrics_total_bytes = static_cast<uint64_t>(config.metrics_total_bytes),
                          .notifications = config.notifications,
                          .version = kVersion,
                          .on_tick = std::move(on_tick)};
  settings.core.heartbeat = std::chrono::milliseconds(config.heartbeat_ms);
  settings.core.lost_after = std::chrono::milliseconds(config.lost_after_ms);
  settings.core.start_timeout = std::chrono::milliseconds(config.start_timeout_ms);
  settings.core.report_timeout = std::chrono::milliseconds(config.report_timeout_ms);
  settings.core.lost_nodes_kept_for = std::chrono::milliseconds(config.lost_nodes_kept_for_ms);
  settings.core.preemption = config.preemption;
  settings.core.quotas = config.quotas;
  settings.core.currency = config.currency;
  settings.core.set_aside_after = static_cast<uint32_t>(config.set_aside_after);
  settings.core.most_skew = std::chrono::milliseconds(config.most_clock_skew_ms);
  settings.log_patterns = AllPatterns(config.log_patterns, config.built_in_log_patterns);
  settings.core.half_life = std::chrono::milliseconds(config.fair_share_half_life_ms);
  settings.core.shares = config.shares;
  settings.core.aging = std::chrono::milliseconds(config.aging_ms);
  settings.may_change = [policies = config.policies](const JobRecord& job, JobOrder::What what,
                                                     int64_t value) {
    JobSpec as_asked;
    as_asked.project = job.project;
    const bool priority = what == JobOrder::What::kPriority;
    if (priority) {
      as_asked.priority = static_cast<int>(value);
    } else {
      as_asked.time_limit_ms = value;
    }
    return KeepsPolicies(policies, as_asked, priority ? "priority" : "time_limit", job.owner);
  };
  // Short heartbeats, as in tests, need a clock that ticks as short.
  settings.tick = std::min<Duration>(settings.tick, settings.core.heartbeat);
  return settings;
}

RpcServer::JobRules JobRulesOf(const ServerConfig& config) {
  RpcServer::JobRules rules{
      .checkpoint_dir = config.CheckpointDir(), .policies = config.policies, .commands = config.commands};
  for (const auto& [name, target] : config.notifications.targets) rules.notify_targets.insert(name);
  return rules;
}

Result<std::shared_ptr<const Ec2Rules>> Ec2RulesOf(const ServerConfig& config) {
  if (!config.ec2_join.On()) return nullptr;
  IMGD_ASSIGN(auto rules, LoadEc2Rules(config.ec2_join));
  return std::make_shared<const Ec2Rules>(std::move(rules));
}

SessionRules SessionRulesOf(const ServerConfig& config) {
  return {.allowed = config.shell,
          .idle_limit = std::chrono::milliseconds(config.shell_idle_limit_ms),
          .most_per_node = static_cast<uint32_t>(config.shell_sessions_per_node)};
}

RetentionRules RetentionRulesOf(const ServerConfig& config) {
  using std::chrono::milliseconds;
  return {.logs_kept_for = milliseconds(config.logs_kept_for_ms),
          .metrics_kept_for = milliseconds(config.metrics_kept_for_ms),
          .logs_total_bytes = static_cast<uint64_t>(config.logs_total_bytes),
          .metrics_total_bytes = static_cast<uint64_t>(config.metrics_total_bytes),
          .log_kept_bytes = static_cast<uint64_t>(config.log_kept_bytes),
          .checkpoints = {.kept_for = milliseconds(config.checkpoints_kept_for_ms),
                          .total_bytes = static_cast<uint64_t>(config.checkpoints_total_bytes),
                          .best_stays = config.best_checkpoints_kept}};
}

namespace {

std::string TextOf(const ConfigChanges& changes, const std::string& actor) {
  std::string text = fmt::format("{} had imgd read its configuration again: ", actor);
  text +=
      changes.changed.empty() ? "nothing is another" : fmt::format("{}", fmt::join(changes.changed, ", "));
  if (!changes.need_restart.empty())
    text += fmt::format("; only a restart takes {}", fmt::join(changes.need_restart, ", "));
  return text;
}

}  // namespace

/// The configuration that holds then; changes nothing.
tl::expected<ServerConfig, std::vector<Error>> Daemon::ReadAgain(ConfigChanges& changes,
                                                                 std::shared_ptr<const Ec2Rules>& ec2) {
  if (!read_again_) {
    return tl::unexpected(
        std::vector<Error>{{.code = ErrorCode::kFailedPrecondition,
                            .message = "imgd was started without --config: there is no file to read again"}});
  }
  const auto read = read_again_();
  if (!read) return tl::unexpected(read.error());
  ServerConfig config = config_;
  changes = TakeChanges(config, *read);
  // Values that are good together in the file may not be beside those that stay.
  if (const auto good = CheckServerConfig(config); !good)
    return tl::unexpected(std::vector<Error>{good.error()});
  auto rules = Ec2RulesOf(config);
  if (!rules) return tl::unexpected(std::vector<Error>{rules.error()});
  ec2 = std::move(*rules);
  return config;
}

void Daemon::Reload(const std::string& actor, std::function<void(ReloadAnswer)> done) {
  const std::lock_guard lock(config_mutex_);
  ConfigChanges changes;
  std::shared_ptr<const Ec2Rules> ec2;
  auto config = ReadAgain(changes, ec2);
  if (!config) {
    spdlog::error("actor=\"{}\" msg=\"the configuration stays as it is: {}\"", actor,
                  config.error().front().ToString());
    done(tl::unexpected(std::move(config).error()));
    return;
  }
  SettingsOrder order{EngineSettingsOf(*config, {}), actor, TextOf(changes, actor)};
  // Nothing of it holds before the change is recorded: where that fails all stays as it is.
  engine_->ChangeSettings(std::move(order), [this, config = std::move(*config), ec2 = std::move(ec2), changes,
                                             done = std::move(done)](const Status& status) mutable {
    if (!status) {
      spdlog::error("msg=\"the configuration stays as it is: {}\"", status.error().ToString());
      done(tl::unexpected(std::vector<Error>{status.error()}));
      return;
    }
    Use(std::move(config), std::move(ec2));
    done(changes);
  });
}

void Daemon::Use(ServerConfig config, std::shared_ptr<const Ec2Rules> ec2) {
  const std::lock_guard lock(config_mutex_);
  config_ = std::move(config);
  spdlog::set_level(spdlog::level::from_str(config_.log_level));
  server_->SetRules(JobRulesOf(config_));
  server_->SetRules(SessionRulesOf(config_));
  server_->SetRules(RetentionRulesOf(config_));
  if (keeper_) keeper_->SetRule(RetentionRulesOf(config_).checkpoints);
  server_->SetEc2Rules(std::move(ec2));
  // Its files may be others under the same names; gRPC looks at its own by itself.
  if (web_ && !config_.web.plain_http) web_->ReloadCertificate();
  WarnOfCertificates(config_);
}

void Daemon::WarnOfCertificates(const ServerConfig& config) const {
  auto warnings = authority_ ? authority_->Warnings() : std::vector<std::string>();
  if (!config.web.listen.empty() && !config.web.certificate.empty()) {
    const auto of_web = WarningsOf(config.web.certificate, clock_->Wall());
    warnings.insert(warnings.end(), of_web.begin(), of_web.end());
  }
  for (const auto& each : warnings) spdlog::warn("msg=\"{}\"", each);
}

}  // namespace imgd
