#pragma once

#include "server/engine/engine.h"
#include "server/web/router.h"

namespace imgd::web {

/// {"status": "ok"}, or 503 with why nothing can be stored. Open to all, and says nothing of the jobs.
Handler Health(Engine* engine);

}  // namespace imgd::web
