#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "cli/output.h"

namespace imgd::cli {

/// The message as JSON: proto field names, every plain field even when it is zero, enums by name. Unlike
/// protobuf's own mapping, 64-bit integers are numbers: ours stay below 2^53, and scripts compare them.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

/// Writes the document as JSON (`format` kJson, indented by 2) or YAML, with a newline at the end.
void PrintDocument(std::ostream& out, const nlohmann::ordered_json& document, OutputFormat format);

/// An array of the messages.
template <typename Messages>
nlohmann::ordered_json ToJsonArray(const Messages& messages);

}  // namespace imgd::cli

#include <nlohmann/json.hpp>

template <typename Messages>
nlohmann::ordered_json imgd::cli::ToJsonArray(const Messages& messages) {
  auto array = nlohmann::ordered_json::array();
  for (const auto& message : messages) array.push_back(ToJson(message));
  return array;
}
