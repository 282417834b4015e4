#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/error.h"

namespace imgd::web {

/// Protobuf's JSON mapping with the fields' own names, those that are zero included.
std::string ToJson(const google::protobuf::Message& message);

/// Fields of a newer sender are passed over. Errors: kInvalidArgument for what is no such message.
Status FromJson(const std::string& text, google::protobuf::Message& message);

}  // namespace imgd::web
