#include "cli/serialize.h"

#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <cctype>

namespace imgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// True for text that any YAML reader takes for text without quotes.
bool IsPlainWord(const std::string& text) {
  if (text.empty() || text.size() > 200 ||
      !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/')) {
    return false;
  }
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("_./-").find(c) == std::string_view::npos)
      return false;
  }
  static constexpr std::string_view kReserved = " y n yes no on off true false null nan inf ";
  std::string lower = " ";
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return kReserved.find(lower + " ") == std::string_view::npos;
}

void EmitText(YAML::Emitter& out, const std::string& text) {
  if (IsPlainWord(text)) {
    out << text;
  } else if (text.find('\n') != std::string::npos && text.find_first_of("\t\r\x1b") == std::string::npos) {
    out << YAML::Literal << text;
  } else {
    out << YAML::DoubleQuoted << text;
  }
}

void Emit(YAML::Emitter& out, const Json& value) {
  if (value.is_object()) {
    out << YAML::BeginMap;
    for (const auto& [name, item] : value.items()) {
      out << YAML::Key << name << YAML::Value;
      Emit(out, item);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (const auto& item : value) Emit(out, item);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    EmitText(out, value.get_ref<const std::string&>());
  } else {
    out << value.dump();
  }
}

}  // namespace

Json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  // Only text that is not UTF-8 makes it fail; the rest of the answer is worth more than the exact bytes.
  return status.ok() ? Json::parse(text, nullptr, false) : Json(message.ShortDebugString());
}

void PrintDocument(std::ostream& out, const Json& document, OutputFormat format) {
  if (format == OutputFormat::kYaml) {
    YAML::Emitter emitter;
    Emit(emitter, document);
    out << emitter.c_str() << '\n';
    return;
  }
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void PrintItem(std::ostream& out, const google::protobuf::Message& message, OutputFormat format) {
  if (format == OutputFormat::kYaml) {
    out << "---\n";
    return PrintDocument(out, ToJson(message), format);
  }
  out << ToJson(message).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace imgd::cli
