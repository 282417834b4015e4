#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <ostream>

#include "cli/output.h"

namespace imgd::cli {

/// The message by protobuf's JSON mapping, with the names of the .proto files and every plain field, zero or
/// not. By that mapping 64-bit integers are text and enums are names.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

/// Writes the document as JSON (`format` kJson, indented by 2) or YAML, with a newline at the end.
void PrintDocument(std::ostream& out, const nlohmann::ordered_json& document, OutputFormat format);

/// Writes one of many messages that come one after the other: JSON on one line, or a YAML document of its
/// own.
void PrintItem(std::ostream& out, const google::protobuf::Message& message, OutputFormat format);

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
