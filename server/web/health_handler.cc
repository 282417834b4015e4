#include "server/web/health_handler.h"

#include "server/web/errors.h"

namespace imgd::web {

Handler Health(Engine* engine) {
  return [engine](const Request&, const Answer& answer) {
    // Not the trouble's own words: they name folders of this machine.
    if (engine->View()->trouble.empty()) {
      answer({.body = "{\"status\":\"ok\"}\n"});
    } else {
      answer(ErrorResponse(503, "UNAVAILABLE", "imgd can't store anything now; its log says why"));
    }
  };
}

}  // namespace imgd::web
