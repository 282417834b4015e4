#pragma once

#include <string>

#include "server/web/router.h"

namespace imgd::web {

/// All that imgd answers by HTTP, but for the dashboard's pages, as an OpenAPI 3.1 document: calls of gRPC
/// made of the table of routes and the messages' descriptors, the others written by hand.
const std::string& OpenApiDocument();

/// GET /api/v1/openapi.json.
Handler OpenApiHandler();

}  // namespace imgd::web
