#pragma once

#include "common/clock.h"
#include "server/engine/engine.h"
#include "server/web/router.h"

namespace imgd::web {

/// All that imgd answers by HTTP, in one table. Both must outlive the router.
Router MakeRouter(Engine* engine, const Clock* clock);

}  // namespace imgd::web
