#pragma once

#include <string>

#include "server/web/router.h"

namespace imgd::web {

/// The API as an OpenAPI 3.1 document, made of the table of routes and the messages' descriptors.
const std::string& OpenApiDocument();

/// GET /api/v1/openapi.json.
Handler OpenApiHandler();

}  // namespace imgd::web
