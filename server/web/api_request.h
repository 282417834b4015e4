#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "server/web/router.h"

/// A request over HTTP as the message that gRPC takes.
namespace imgd::web {

/// "a=1&b=x%20y" as pairs, decoded, in their order. '+' stands for a blank.
std::vector<std::pair<std::string, std::string>> ParseQuery(std::string_view query);

/// Puts the text into the field: of a repeated one, each of its parts between commas is added. Enumerations
/// by name. Errors: kInvalidArgument with the field, what was found and what is allowed.
Status SetField(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                const std::string& text);

/// Fills `message` from a body in JSON (where there is one), the query's fields and the names of the path.
/// Errors: kInvalidArgument: of a body that is no JSON, with line and column; of a field that the message
/// does not have, with the nearest one that it has; of one that the path has and another place contradicts.
Status ReadRequest(const Request& request, google::protobuf::Message& message);

}  // namespace imgd::web
