#include "server/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>

#include "common/tls/pem.h"
#include "common/url.h"
#include "server/auth/tokens.h"
#include "server/store/restore_install.h"
#include "server/store/state_folder.h"
#include "server/web/routes.h"

namespace imgd {
namespace {

constexpr int kReadingThreads = 4;
/// Connections that are no listeners, agents, databases, logs.
constexpr uint64_t kOtherFiles = 4096;
constexpr auto kPatience = std::chrono::seconds(2);

AuthoritySettings AuthorityOf(const ServerConfig& config) {
  const TlsConfig& tls = config.tls;
  AuthoritySettings settings{.folder = config.state_dir,
                             .ca_certificate = tls.ca_certificate,
                             .ca_key = tls.ca_key,
                             .certificate = tls.certificate,
                             .key = tls.key,
                             .names = tls.names,
                             .server_lifetime = std::chrono::milliseconds(tls.server_certificate_ms),
                             .node_lifetime = std::chrono::milliseconds(tls.node_certificate_ms)};
  for (const auto& address : {config.listen, config.web.listen}) {
    if (!address.empty()) settings.names.push_back(address.substr(0, address.rfind(':')));
  }
  return settings;
}

/// The web is served by HTTPS with a certificate that imgd makes.
bool MakesWebCertificate(const ServerConfig& config) {
  return !config.web.listen.empty() && !config.web.plain_http && config.web.certificate.empty();
}

bool NeedsAuthority(const ServerConfig& config) { return config.UsesTls() || MakesWebCertificate(config); }

web::WebSettings WebSettingsOf(const ServerConfig& config) {
  return {.listen = config.web.listen, .certificate = config.web.certificate, .key = config.web.key};
}

/// One that the machine went down in.
Status FinishRestore(const std::filesystem::path& state_dir) {
  const bool begun = std::filesystem::exists(state_dir / kHalfRestored);
  IMGD_ASSIGN(const auto aside, FinishInstall(state_dir));
  if (begun) {
    spdlog::warn("state_dir={} set_aside={} msg=\"a restore had been broken off, and is finished now\"",
                 state_dir.native(), aside.native());
  }
  return {};
}

RpcServer::Door DoorOf(const ServerConfig& config, const Authority* authority) {
  using Security = RpcServer::Security;
  const Security plain = config.tls.plain_text ? Security::kNone : Security::kLocal;
  return {config.listen, config.UsesTls() ? Security::kTls : plain, authority};
}

}  // namespace

Status CheckFiles(const ServerConfig& config, const Clock* clock) {
  IMGD_TRY(Ec2RulesOf(config));
  IMGD_TRY(MakeCouriers(config.notifications, clock));
  if (NeedsAuthority(config)) IMGD_TRY(Authority::Check(AuthorityOf(config), clock));
  if (config.web.listen.empty() || config.web.certificate.empty()) return {};
  IMGD_TRY(web::WebServer::CheckCertificate(WebSettingsOf(config)));
  return CheckTimesOf(config.web.certificate, clock->Wall());
}

Result<std::unique_ptr<Daemon>> Daemon::Start(const ServerConfig& config, const Clock* clock,
                                              std::function<void()> on_tick, ReadConfigFunction read_again) {
  IMGD_TRY(CheckServerConfig(config));
  IMGD_TRY(MakeFolders(config.state_dir));
  std::unique_ptr<Daemon> daemon(new Daemon(clock));
  IMGD_ASSIGN(daemon->lock_, LockStateFolder(config.state_dir));
  IMGD_TRY(FinishRestore(config.state_dir));
  const std::lock_guard starting(daemon->config_mutex_);  // who wants a reload waits until all is there
  daemon->config_ = config;
  daemon->read_again_ = std::move(read_again);
  IMGD_ASSIGN(auto ec2, Ec2RulesOf(config));
  IMGD_TRY(daemon->OpenAuthority(config));
  // The engine starts, and ticks, when the server is there.
  auto tick = [daemon = daemon.get(), on_tick = std::move(on_tick)] {
    if (on_tick) on_tick();
    daemon->server_->EndStreamsOfExpired();
  };
  IMGD_ASSIGN(daemon->engine_, Engine::Open(EngineSettingsOf(config, std::move(tick)), clock));
  IMGD_ASSIGN(daemon->pool_, ReadPool::Start(config.state_dir, kReadingThreads));
  IMGD_TRY(daemon->StartNotifier(config));
  const auto reload = [daemon = daemon.get()](const std::string& actor,
                                              std::function<void(ReloadAnswer)> done) {
    daemon->Reload(actor, std::move(done));
  };
  IMGD_ASSIGN(daemon->server_, RpcServer::Start(DoorOf(config, daemon->authority_.get()), JobRulesOf(config),
                                                daemon->engine_.get(), daemon->pool_.get(), clock, reload));
  daemon->server_->SetEc2Rules(std::move(ec2));
  daemon->server_->EndSessionsOfBefore(*daemon->pool_);
  daemon->server_->SetRules(SessionRulesOf(config));
  daemon->server_->SetRules(RetentionRulesOf(config));
  IMGD_TRY(daemon->StartWeb(config));
  daemon->server_->OnTokensOver([web = daemon->web_.get()](const IsTokenOver& is_over) {
    if (web != nullptr) web->EndListenersOf(is_over);
  });
  daemon->engine_->Start();
  IMGD_TRY(daemon->StartKeeper(config));
  if (config.UsesTls()) IMGD_TRY(daemon->MakeFirstAdmin(config.state_dir));
  daemon->WarnOfCertificates(config);
  return daemon;
}

Status Daemon::OpenAuthority(const ServerConfig& config) {
  if (!NeedsAuthority(config)) return {};
  IMGD_ASSIGN(authority_, Authority::Open(AuthorityOf(config), clock_));
  spdlog::info("ca={} sha256={} msg=\"certificates are by this CA\"", authority_->ca_path().native(),
               tls::WithColons(authority_->pin()));
  const Duration lifetime = std::chrono::milliseconds(config.tls.server_certificate_ms);
  renewal_ = std::make_unique<Renewal>(authority_.get(),
                                       std::min<Duration>(std::chrono::minutes(10), lifetime / 10), [this] {
                                         const std::lock_guard lock(reload_mutex_);
                                         if (reload_) reload_();
                                       });
  return {};
}

Status Daemon::StartNotifier(const ServerConfig& config) {
  IMGD_ASSIGN(auto couriers, MakeCouriers(config.notifications, clock_));
  const NotifierSettings settings{.give_up_after =
                                      std::chrono::milliseconds(config.notifications.give_up_after_ms)};
  notifier_ = std::make_unique<Notifier>(
      std::move(couriers), settings, clock_,
      [engine = engine_.get()](std::vector<std::string> ids) { engine->OnSettled(std::move(ids)); });
  engine_->TellBy(
      {.add = [notifier = notifier_.get()](Notification notice) { notifier->Add(std::move(notice)); },
       .dropped = [notifier = notifier_.get()](const std::string& target) { notifier->NoteDropped(target); },
       .forget = [notifier = notifier_.get()](JobId job) { notifier->Drop(job); }});
  notifier_->Start();
  return {};
}

Status Daemon::StartKeeper(const ServerConfig& config) {
  const auto tell = [engine = engine_.get()](std::string text) {
    engine->NoteAdministered("imgd", std::move(text), [](const Status& status) {
      if (!status) spdlog::warn("msg=\"no event tells of it: {}\"", status.error().ToString());
    });
  };
  IMGD_ASSIGN(keeper_,
              CheckpointKeeper::Start(config.state_dir, clock_, RetentionRulesOf(config).checkpoints, tell));
  return {};
}

Status Daemon::MakeFirstAdmin(const std::filesystem::path& folder) {
  const auto tokens = engine_->View()->tokens;
  const auto is_admin = [now = clock_->Wall()](const auto& token) {
    return CallerOf(token.second, Scope::kAdmin, now).refusal == Refusal::kNone;
  };
  if (std::any_of(tokens->begin(), tokens->end(), is_admin)) return {};
  const auto path = folder / "admin.token";
  IMGD_ASSIGN(const std::string secret, NewSecret());
  IMGD_TRY(tls::WriteSecretFile(path, secret + "\n"));
  TokenOrder order{.record = {.name = fmt::format("admin-{}", HashOf(secret).substr(0, 8)),
                              .hash = HashOf(secret),
                              .owner = "admin",
                              .scopes = {std::string(NameOf(Scope::kAdmin))}},
                   .actor = "imgd"};
  // Waited for: whoever finds the file may use it at once.
  const auto stored = std::make_shared<std::promise<Result<TokenRecord>>>();
  engine_->ChangeToken(std::move(order),
                       [stored](const Result<TokenRecord>& made) { stored->set_value(made); });
  if (const auto made = stored->get_future().get()) {
    spdlog::info("file={} token={} msg=\"made the first admin's token\"", path.native(), made->name);
  } else {
    spdlog::error("msg=\"cannot store the first admin's token: {}\"", made.error().message);
  }
  return {};
}

Status Daemon::StartWeb(const ServerConfig& config) {
  if (config.web.listen.empty()) return {};
  const std::string host = config.web.listen.substr(0, config.web.listen.rfind(':'));
  web::WebSettings settings = WebSettingsOf(config);
  const bool own = MakesWebCertificate(config);
  if (own) {
    settings.certificate = authority_->certificate_path();
    settings.key = authority_->key_path();
  }
  (void)AllowOpenFiles(settings.most_listeners + kOtherFiles);
  IMGD_ASSIGN(sessions_,
              BrowserSessions::Open(std::filesystem::path(config.state_dir) / "web.sessions", clock_));
  IMGD_ASSIGN(feed_, web::LiveFeed::Start(config.state_dir, engine_.get(), clock_));
  web::Router router = web::MakeRouter({.engine = engine_.get(),
                                        .clock = clock_,
                                        .caller = &server_->caller(),
                                        .pool = pool_.get(),
                                        .feed = feed_.get(),
                                        .calls = &server_->calls(),
                                        .notifier = notifier_.get(),
                                        .sessions = sessions_.get(),
                                        .loopback = IsLoopbackHost(host),
                                        .tls = !settings.certificate.empty(),
                                        .grpc_port = server_->port()});
  IMGD_ASSIGN(web_, web::WebServer::Start(settings, std::move(router)));
  sessions_->OnEnd([web = web_.get()](const std::string& session) { web->EndListenersOfSession(session); });
  if (settings.certificate.empty()) {
    spdlog::info("web=http://{}:{} msg=\"serves plain HTTP\"", host, web_->port());
  } else {
    spdlog::info("web=https://{}:{} certificate={}", host, web_->port(), settings.certificate);
  }
  if (own) {
    const std::lock_guard lock(reload_mutex_);
    reload_ = [web = web_.get()] { web->ReloadCertificate(); };
  }
  return {};
}

Daemon::~Daemon() {
  renewal_.reset();
  {
    // Before the engine, which stores what it tells of; a reload may be at its rules yet.
    const std::lock_guard lock(config_mutex_);
    keeper_.reset();
  }
  if (web_) web_->Stop(kPatience);
  if (server_) server_->Stop(kPatience);
  if (notifier_) notifier_->Stop();  // what it has delivered the engine stores yet
  if (engine_) engine_->Stop();
  if (sessions_) sessions_->OnEnd({});
  web_.reset();  // the engine had answers for it until now
  feed_.reset();
  // Its threads have looked into the server's services until now; and the readers' connections close before
  // the writers', which then tidy up the write-ahead logs.
  pool_.reset();
  server_.reset();
}

}  // namespace imgd
