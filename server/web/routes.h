#pragma once

#include "common/clock.h"
#include "server/auth/browser_sessions.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/notify/notifier.h"
#include "server/rpc/call_times.h"
#include "server/web/api.h"
#include "server/web/live_feed.h"
#include "server/web/router.h"

namespace imgd::web {

/// What the routes need; all of it must outlive the router.
struct WebParts {
  Engine* engine;
  const Clock* clock;
  ApiCaller* caller;
  ReadPool* pool;
  LiveFeed* feed;
  const CallTimes* calls;
  const Notifier* notifier;
  BrowserSessions* sessions;
  /// Only this machine's own users can connect. Then the API is open to all for as long as there is no token
  /// for it, as gRPC is.
  bool loopback = false;
  bool tls = false;  ///< it is served with a certificate
  int grpc_port = 0;
};

/// All that imgd answers by HTTP, in one table.
Router MakeRouter(const WebParts& parts);

}  // namespace imgd::web
