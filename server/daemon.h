#pragma once

#include <functional>
#include <memory>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/rpc/server.h"
#include "server/web/live_feed.h"
#include "server/web/server.h"

namespace imgd {

/// The whole daemon but for the process around it: the state folder's lock, the engine, the readers, the
/// server. The first member started is the last to end.
class Daemon {
 public:
  /// Errors: kAlreadyExists when another daemon has the state folder or the address; those of the store.
  /// `on_tick` is called several times a second while the core is alive; may be empty.
  static Result<std::unique_ptr<Daemon>> Start(const ServerConfig& config, const Clock* clock,
                                               std::function<void()> on_tick);
  /// Answers what has come in, stores it and ends.
  ~Daemon();

  int port() const { return server_->port(); }
  /// Port of HTTP; 0 where it is off.
  int web_port() const { return web_ ? web_->port() : 0; }
  Engine& engine() { return *engine_; }

 private:
  Daemon() = default;
  Status StartWeb(const ServerConfig& config, const Clock* clock);

  UniqueFd lock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ReadPool> pool_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<web::LiveFeed> feed_;
  std::unique_ptr<web::WebServer> web_;
};

}  // namespace imgd
