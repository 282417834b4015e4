#include "common/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace imgd {
namespace {

constexpr size_t kMostOfName = 63;
constexpr size_t kMostOfValue = 127;

bool IsMadeOf(std::string_view text, std::string_view signs, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [signs](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || signs.find(c) != std::string_view::npos;
  });
}

std::string WrongName(std::string_view name) {
  return fmt::format("found '{}'; a label's name has 1 to {} letters, digits, '.', '_', '/' or '-'", name,
                     kMostOfName);
}

std::string WrongValue(std::string_view value) {
  return fmt::format("found '{}'; a label's value has 1 to {} letters, digits, '.', '_', '/', ':' or '-'",
                     value, kMostOfValue);
}

}  // namespace

bool IsLabelName(std::string_view name) { return IsMadeOf(name, "._/-", kMostOfName); }

bool IsLabelValue(std::string_view value) { return IsMadeOf(value, "._/:-", kMostOfValue); }

Status AddLabel(std::string_view text, std::map<std::string, std::string>& labels) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return Fail(ErrorCode::kInvalidArgument, "label '{}': NAME=VALUE is expected", text);
  const auto name = text.substr(0, equals);
  const auto value = text.substr(equals + 1);
  if (!IsLabelName(name)) return Fail(ErrorCode::kInvalidArgument, "label '{}': {}", text, WrongName(name));
  if (!IsLabelValue(value))
    return Fail(ErrorCode::kInvalidArgument, "label '{}': {}", text, WrongValue(value));
  labels[std::string(name)] = value;
  return {};
}

std::map<std::string, std::string> ReadLabels(YamlMap& yaml, std::string_view key) {
  std::map<std::string, std::string> labels;
  auto map = yaml.Child(key);
  for (const auto& name : map.Keys()) {
    const auto value = map.String(name);
    if (!IsLabelName(name)) map.AddError(name, WrongName(name));
    if (!value) continue;
    if (!IsLabelValue(*value)) map.AddError(name, WrongValue(*value));
    labels[name] = *value;
  }
  map.Finish();
  return labels;
}

}  // namespace imgd
