#include "server/web/api_request.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/url.h"
#include "common/utf8.h"
#include "common/yaml.h"

namespace imgd::web {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostShown = 100;

/// Of what was sent, in an error: cut, and text whatever it was.
std::string Shown(std::string_view text) { return ToUtf8(text.substr(0, kMostShown)); }

Error BadValue(const FieldDescriptor& field, std::string_view text, std::string_view allowed) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = fmt::format("{}: found '{}'; {}", field.name(), Shown(text), allowed)};
}

Error NoSuchField(const google::protobuf::Descriptor& message, const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  const auto nearest = NearestWord(name, names);
  return {.code = ErrorCode::kInvalidArgument,
          .message = fmt::format("there is no field '{}'", Shown(name)),
          .hint = nearest         ? fmt::format("did you mean '{}'?", *nearest)
                  : names.empty() ? "there is no field at all"
                                  : fmt::format("there are {}", fmt::join(names, ", "))};
}

template <typename T>
Result<T> ReadNumber(const FieldDescriptor& field, const std::string& text, std::string_view allowed) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return tl::unexpected(BadValue(field, text, allowed));
}

Result<int> EnumValue(const FieldDescriptor& field, const std::string& text) {
  const EnumDescriptor& type = *field.enum_type();
  if (const auto* value = type.FindValueByName(text)) return value->number();
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  Error error = BadValue(field, text, fmt::format("allowed: {}", fmt::join(names, ", ")));
  if (const auto nearest = NearestWord(text, names)) error.hint = fmt::format("did you mean '{}'?", *nearest);
  return tl::unexpected(std::move(error));
}

/// Calls `set` with the text as the field's type has it.
template <typename Set>
Status WithValue(const FieldDescriptor& field, const std::string& text, Set set) {
  const auto number = [&]<typename T>(T, std::string_view allowed) -> Status {
    IMGD_ASSIGN(const T value, ReadNumber<T>(field, text, allowed));
    set(value);
    return {};
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return number(int32_t{}, "a whole number is expected");
    case FieldDescriptor::CPPTYPE_INT64:
      return number(int64_t{}, "a whole number is expected");
    case FieldDescriptor::CPPTYPE_UINT32:
      return number(uint32_t{}, "a whole number from 0 to 4294967295 is expected");
    case FieldDescriptor::CPPTYPE_UINT64:
      return number(uint64_t{}, "a whole number that is not negative is expected");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(double{}, "a number is expected");
    case FieldDescriptor::CPPTYPE_FLOAT:
      return number(float{}, "a number is expected");
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false")
        return tl::unexpected(BadValue(field, text, "true or false is expected"));
      set(text == "true");
      return {};
    case FieldDescriptor::CPPTYPE_STRING:
      if (FindInvalidUtf8(text)) return tl::unexpected(BadValue(field, text, "UTF-8 is expected"));
      set(text);
      return {};
    default:
      return tl::unexpected(BadValue(field, text, "such a field has no place in a query"));
  }
}

Status SetOne(Message& message, const FieldDescriptor& field, const std::string& text) {
  const auto* reflection = message.GetReflection();
  const bool repeated = field.is_repeated();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    IMGD_ASSIGN(const int value, EnumValue(field, text));
    if (repeated) {
      reflection->AddEnumValue(&message, &field, value);
    } else {
      reflection->SetEnumValue(&message, &field, value);
    }
    return {};
  }
  return WithValue(field, text, [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
#define IMGD_PUT(type, name)                          \
  if constexpr (std::is_same_v<T, type>) {            \
    if (repeated) {                                   \
      reflection->Add##name(&message, &field, value); \
    } else {                                          \
      reflection->Set##name(&message, &field, value); \
    }                                                 \
  }
    IMGD_PUT(int32_t, Int32)
    IMGD_PUT(int64_t, Int64)
    IMGD_PUT(uint32_t, UInt32)
    IMGD_PUT(uint64_t, UInt64)
    IMGD_PUT(double, Double)
    IMGD_PUT(float, Float)
    IMGD_PUT(bool, Bool)
    IMGD_PUT(std::string, String)
#undef IMGD_PUT
  });
}

/// Where a text stops being JSON.
class SyntaxCheck : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Deeper(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return Deeper(); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    at = position;
    return false;
  }

  std::optional<size_t> at;  ///< byte, from 1
  bool too_deep = false;

 private:
  static constexpr int kMostDepth = 64;
  bool Deeper() { return !(too_deep = ++depth_ > kMostDepth); }
  int depth_ = 0;
};

Status CheckSyntax(const std::string& text) {
  SyntaxCheck check;
  if (nlohmann::json::sax_parse(text, &check)) return {};
  if (check.too_deep) return Fail(ErrorCode::kInvalidArgument, "the body is nested too deeply");
  const size_t at = std::min(check.at.value_or(1) - 1, text.size());
  const std::string_view before(text.data(), at);
  const size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
  Error error{
      .code = ErrorCode::kInvalidArgument,
      .message = at >= text.size() ? "the body is no JSON: it ends too early" : "the body is no JSON here",
      .line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
      .column = static_cast<int>(at - line_begin) + 1};
  return tl::unexpected(std::move(error));
}

/// "TYPE_INT32" as people say it.
std::string_view WordsOfType(std::string_view type) {
  constexpr std::string_view kScalar = "TYPE_";
  if (!type.starts_with(kScalar)) return "an object";  // "type.googleapis.com/imgd.v1.PauseJob"
  type.remove_prefix(kScalar.size());
  if (type == "BOOL") return "true or false";
  if (type == "DOUBLE" || type == "FLOAT") return "a number";
  if (type == "ENUM") return "one of its names";
  if (type.find("64") != std::string_view::npos) return "a whole number of 64 bits";
  return type.find("32") == std::string_view::npos ? "a text" : "a whole number of 32 bits";
}

/// Of a field that excludes another one, which is set already.
std::string WhyNotBoth(const Message& message, const std::string& field) {
  const FieldDescriptor* found = message.GetDescriptor()->FindFieldByName(field);
  std::vector<std::string> names;
  const auto* oneof = found == nullptr ? nullptr : found->containing_oneof();
  for (int i = 0; oneof != nullptr && i < oneof->field_count(); ++i) names.push_back(oneof->field(i)->name());
  return fmt::format("'{}' is set beside another field that it excludes{}", Shown(field),
                     names.empty() ? "" : fmt::format("; only one of {} can be", fmt::join(names, ", ")));
}

/// Of what the parser of protobuf says.
Error WhyNotRead(const Message& message, const std::string& words) {
  const auto error = [](std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; };
  const size_t path = words.starts_with("(") ? words.find(')') : 0;
  const auto field = [&] { return Shown(words.substr(1, path - 1)); };
  constexpr std::string_view kUnknown = ": Cannot find field.";
  if (const size_t end = words.find(kUnknown); end != std::string::npos) {
    // "(path) name: Cannot find field."; of a message within, its own fields would have to be named.
    const size_t begin = words.rfind(' ', end - 1) + 1;
    const std::string name = words.substr(begin, end - begin);
    if (path > 1 && path != std::string::npos)
      return error(fmt::format("there is no field '{}' in '{}'", Shown(name), field()));
    return NoSuchField(*message.GetDescriptor(), name);
  }
  // "(path): invalid value 7 for type TYPE_BOOL"
  constexpr std::string_view kInvalid = ": invalid value ";
  constexpr std::string_view kType = " for type ";
  const size_t type = words.rfind(kType);
  if (path > 1 && type != std::string::npos && words.compare(path + 1, kInvalid.size(), kInvalid) == 0) {
    const size_t begin = path + 1 + kInvalid.size();
    return error(fmt::format("{}: found {}; {} is expected", field(),
                             Shown(words.substr(begin, type - begin)),
                             WordsOfType(std::string_view(words).substr(type + kType.size()))));
  }
  // "(path): oneof field 'change' is already set. Cannot set 'resume' for type oneof"
  constexpr std::string_view kSecond = "is already set. Cannot set '";
  if (const size_t at = words.find(kSecond); at != std::string::npos) {
    const size_t begin = at + kSecond.size();
    return error(WhyNotBoth(message, words.substr(begin, words.find('\'', begin) - begin)));
  }
  return error(
      fmt::format("the body is no {}: {}", message.GetDescriptor()->name(), words.substr(0, 2 * kMostShown)));
}

Status ReadBody(const std::string& body, Message& message) {
  IMGD_TRY(CheckSyntax(body));
  if (body[body.find_first_not_of(" \t\r\n")] != '{')
    return Fail(ErrorCode::kInvalidArgument, "the body is no JSON object, as {{\"name\": \"value\"}} is one");
  const auto status = google::protobuf::util::JsonStringToMessage(body, &message);
  if (status.ok()) return {};
  const auto why = status.message();
  return tl::unexpected(WhyNotRead(message, ToUtf8(std::string(why.data(), why.size()))));
}

std::string TextOf(const Message& message, const FieldDescriptor& field) {
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1, &text);
  return text;
}

/// What the path says of a field; the body may say the same, but nothing else.
Status SetFromPath(Message& message, const FieldDescriptor& field, const std::string& text) {
  const std::unique_ptr<Message> unset(message.New());
  const std::string said = TextOf(message, field);
  IMGD_TRY(SetOne(message, field, text));
  const std::string named = TextOf(message, field);
  if (said == TextOf(*unset, field) || said == named) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: found {} in the body; the path has {}", field.name(),
              Shown(said), named);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ParseQuery(std::string_view query) {
  const auto decode = [](std::string_view text) {
    std::string plain(text);
    std::replace(plain.begin(), plain.end(), '+', ' ');
    return PercentDecode(plain);
  };
  std::vector<std::pair<std::string, std::string>> out;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    out.emplace_back(decode(pair.substr(0, equals)), decode(pair.substr(std::min(equals + 1, pair.size()))));
  }
  return out;
}

Status SetField(Message& message, const FieldDescriptor& field, const std::string& text) {
  if (!field.is_repeated()) {
    // "&from=&to=": nothing is said.
    if (text.empty() && field.has_presence() && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING)
      return {};
    return SetOne(message, field, text);
  }
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) IMGD_TRY(SetOne(message, field, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return {};
}

Status ReadRequest(const Request& request, Message& message) {
  if (!request.body.empty()) IMGD_TRY(ReadBody(request.body, message));
  const auto* descriptor = message.GetDescriptor();
  for (const auto& [name, text] : ParseQuery(request.query)) {
    const auto* field = descriptor->FindFieldByName(name);
    if (field == nullptr) return tl::unexpected(NoSuchField(*descriptor, name));
    if (request.parameters.contains(name))
      return Fail(ErrorCode::kInvalidArgument, "the path has the field '{}' already", name);
    IMGD_TRY(SetField(message, *field, text));
  }
  for (const auto& [name, text] : request.parameters)
    IMGD_TRY(SetFromPath(message, *descriptor->FindFieldByName(name), PercentDecode(text)));
  return {};
}

}  // namespace imgd::web
