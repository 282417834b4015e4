#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "server/auth/authority.h"
#include "server/auth/browser_sessions.h"
#include "server/auth/ec2_identity.h"
#include "server/auth/renewal.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/notify/notifier.h"
#include "server/retention/checkpoint_keeper.h"
#include "server/rpc/server.h"
#include "server/web/live_feed.h"
#include "server/web/server.h"

namespace imgd {

/// The configuration as its file and the command line have it at this moment, or each error.
using ReadConfigFunction = std::function<tl::expected<ServerConfig, std::vector<Error>>()>;

/// What of the configuration the engine goes by.
EngineSettings EngineSettingsOf(const ServerConfig& config, std::function<void()> on_tick);
/// What of it jobs get and may ask for.
RpcServer::JobRules JobRulesOf(const ServerConfig& config);
/// Whether the files that it names, and those of the state folder, are such that imgd starts and is let in by
/// others: certificates, keys, notifications' secrets. Makes nothing. Errors: as Daemon::Start; of a
/// certificate that has run out, or is not good yet, kFailedPrecondition.
Status CheckFiles(const ServerConfig& config, const Clock* clock);
/// Which EC2 instances join by it, with the certificates that it names; null: none. Errors: as LoadEc2Rules.
Result<std::shared_ptr<const Ec2Rules>> Ec2RulesOf(const ServerConfig& config);
SessionRules SessionRulesOf(const ServerConfig& config);
RetentionRules RetentionRulesOf(const ServerConfig& config);

/// The whole daemon but for the process around it: the state folder's lock, the engine, the readers, the
/// server. The first member started is the last to end.
class Daemon {
 public:
  /// Errors: kAlreadyExists when another daemon has the state folder or the address; those of the store.
  /// `on_tick` is called several times a second while the core is alive; may be empty. `read_again` gives the
  /// configuration as it is now, for Reload(); on any thread. Empty: there is nothing to read.
  static Result<std::unique_ptr<Daemon>> Start(const ServerConfig& config, const Clock* clock,
                                               std::function<void()> on_tick,
                                               ReadConfigFunction read_again = {});
  /// Answers what has come in, stores it and ends.
  ~Daemon();

  int port() const { return server_->port(); }
  /// Port of HTTP; 0 where it is off.
  int web_port() const { return web_ ? web_->port() : 0; }
  Engine& engine() { return *engine_; }

  /// Reads the configuration again, and takes from it what can change while imgd runs
  /// (server/config_changes.cc has the table). Where something in it is wrong nothing changes. `done` is
  /// called when the new values hold. Thread-safe.
  void Reload(const std::string& actor, std::function<void(ReloadAnswer)> done);

 private:
  explicit Daemon(const Clock* clock) : clock_(clock) {}
  Status OpenAuthority(const ServerConfig& config);
  Status StartNotifier(const ServerConfig& config);
  Status StartKeeper(const ServerConfig& config);
  Status StartWeb(const ServerConfig& config);
  /// Logs what is to be said of certificates that others made, by this configuration.
  void WarnOfCertificates(const ServerConfig& config) const;
  /// The first admin's token, in a file, where nobody has one.
  Status MakeFirstAdmin(const std::filesystem::path& folder);
  tl::expected<ServerConfig, std::vector<Error>> ReadAgain(ConfigChanges& changes,
                                                           std::shared_ptr<const Ec2Rules>& ec2);
  /// From now on, by all parts but the engine, which has it already.
  void Use(ServerConfig config, std::shared_ptr<const Ec2Rules> ec2);

  const Clock* clock_;
  UniqueFd lock_;
  std::unique_ptr<Authority> authority_;  ///< null where nothing is served by TLS
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<ReadPool> pool_;
  std::unique_ptr<CheckpointKeeper> keeper_;  ///< guarded by config_mutex_ once the engine runs
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<BrowserSessions> sessions_;  ///< null without HTTP
  std::unique_ptr<web::LiveFeed> feed_;
  std::unique_ptr<web::WebServer> web_;
  std::mutex reload_mutex_;
  std::function<void()> reload_;  ///< guarded by reload_mutex_; has the web server take the new certificate
  ReadConfigFunction read_again_;
  std::mutex config_mutex_;
  ServerConfig config_;  ///< what holds now; guarded by config_mutex_
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace imgd
