#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace imgd::web {

/// The message as the API shows it: as ToJson(), but that a metric's points are arrays of four numbers, which
/// is a third of the bytes and a tenth of the time.
std::string ApiJson(const google::protobuf::Message& message);

}  // namespace imgd::web
