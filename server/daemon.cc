#include "server/daemon.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>

#include <cerrno>

#include "common/url.h"
#include "common/version.h"
#include "server/web/certificate.h"
#include "server/web/routes.h"

namespace imgd {
namespace {

constexpr int kReadingThreads = 4;
/// Connections that are no listeners, agents, databases, logs.
constexpr uint64_t kOtherFiles = 4096;
constexpr auto kPatience = std::chrono::seconds(2);

/// Held as long as the daemon lives; the system lets go of it however that ends.
Result<UniqueFd> LockFolder(const std::filesystem::path& folder) {
  const auto path = folder / "imgd.lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, "cannot open " + path.native());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) {
    return Fail(ErrorCode::kAlreadyExists, "another imgd uses {} already; each needs a state_dir of its own",
                folder.native());
  }
  return FailErrno(errno, "cannot lock " + path.native());
}

EngineSettings SettingsOf(const ServerConfig& config, std::function<void()> on_tick) {
  EngineSettings settings{.state_dir = config.state_dir,
                          .log_kept_bytes = static_cast<uint64_t>(config.log_kept_bytes),
                          .events_kept = static_cast<uint64_t>(config.events_kept),
                          .events_kept_for = std::chrono::milliseconds(config.events_kept_for_ms),
                          .version = kVersion,
                          .on_tick = std::move(on_tick)};
  settings.core.heartbeat = std::chrono::milliseconds(config.heartbeat_ms);
  settings.core.lost_after = std::chrono::milliseconds(config.lost_after_ms);
  settings.core.start_timeout = std::chrono::milliseconds(config.start_timeout_ms);
  settings.core.report_timeout = std::chrono::milliseconds(config.report_timeout_ms);
  settings.core.preemption = config.preemption;
  settings.core.quotas = config.quotas;
  settings.core.currency = config.currency;
  settings.core.set_aside_after = static_cast<uint32_t>(config.set_aside_after);
  settings.core.most_skew = std::chrono::milliseconds(config.most_clock_skew_ms);
  settings.log_patterns = AllPatterns(config.log_patterns, config.built_in_log_patterns);
  settings.core.half_life = std::chrono::milliseconds(config.fair_share_half_life_ms);
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

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Start(const ServerConfig& config, const Clock* clock,
                                              std::function<void()> on_tick) {
  IMGD_TRY(CheckServerConfig(config));
  IMGD_TRY(MakeFolders(config.state_dir));
  std::unique_ptr<Daemon> daemon(new Daemon);
  IMGD_ASSIGN(daemon->lock_, LockFolder(config.state_dir));
  IMGD_ASSIGN(daemon->engine_, Engine::Open(SettingsOf(config, std::move(on_tick)), clock));
  IMGD_ASSIGN(daemon->pool_, ReadPool::Start(config.state_dir, kReadingThreads));
  RpcServer::JobRules rules{
      .checkpoint_dir = config.CheckpointDir(), .policies = config.policies, .commands = config.commands};
  IMGD_ASSIGN(daemon->server_, RpcServer::Start(config.listen, std::move(rules), daemon->engine_.get(),
                                                daemon->pool_.get(), clock));
  IMGD_TRY(daemon->StartWeb(config, clock));
  daemon->engine_->Start();
  return daemon;
}

Status Daemon::StartWeb(const ServerConfig& config, const Clock* clock) {
  if (config.web.listen.empty()) return {};
  const std::string host = config.web.listen.substr(0, config.web.listen.rfind(':'));
  web::WebSettings settings{
      .listen = config.web.listen, .certificate = config.web.certificate, .key = config.web.key};
  if (!config.web.plain_http && settings.certificate.empty()) {
    IMGD_ASSIGN(const auto own, web::OwnCertificate(config.state_dir, host));
    settings.certificate = own.certificate;
    settings.key = own.key;
  }
  (void)AllowOpenFiles(settings.most_listeners + kOtherFiles);
  std::string fingerprint;
  if (!settings.certificate.empty()) {
    IMGD_ASSIGN(fingerprint, web::FingerprintOf(settings.certificate));
  }
  IMGD_ASSIGN(feed_, web::LiveFeed::Start(config.state_dir, engine_.get(), clock));
  web::Router router = web::MakeRouter({.engine = engine_.get(),
                                        .clock = clock,
                                        .caller = &server_->caller(),
                                        .pool = pool_.get(),
                                        .feed = feed_.get(),
                                        .calls = &server_->calls(),
                                        .loopback = IsLoopbackHost(host)});
  IMGD_ASSIGN(web_, web::WebServer::Start(settings, std::move(router)));
  if (fingerprint.empty()) {
    spdlog::info("web=http://{}:{} msg=\"serves plain HTTP\"", host, web_->port());
  } else {
    spdlog::info("web=https://{}:{} certificate={} sha256={}", host, web_->port(), settings.certificate,
                 fingerprint);
  }
  return {};
}

Daemon::~Daemon() {
  if (web_) web_->Stop(kPatience);
  if (server_) server_->Stop(kPatience);
  if (engine_) engine_->Stop();
  web_.reset();  // the engine had answers for it until now
  feed_.reset();
  // The readers' connections close before the writers', which then tidy up the write-ahead logs.
  server_.reset();
  pool_.reset();
}

}  // namespace imgd
