#include "server/web/json.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "common/utf8.h"

namespace imgd::web {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Fails only for what these messages don't have (Any, field masks).
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text + "\n";
}

Status FromJson(const std::string& text, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &message, options);
  if (status.ok()) return {};
  const auto why = status.message();
  // Cut anywhere, and it may repeat what was sent.
  return Fail(ErrorCode::kInvalidArgument, "the body is no {} in JSON: {}", message.GetDescriptor()->name(),
              ToUtf8(std::string(why.data(), std::min<size_t>(why.size(), 200))));
}

}  // namespace imgd::web
