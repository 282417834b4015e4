#include "common/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

namespace imgd {

struct YamlMap::Shared {
  std::string file;
  std::vector<Error> errors;
};

namespace {

Error ErrorAt(const YAML::Mark& mark, const std::string& file, std::string message) {
  Error error{.code = ErrorCode::kInvalidArgument, .message = std::move(message), .file = file};
  if (!mark.is_null()) {
    error.line = mark.line + 1;
    error.column = mark.column + 1;
  }
  return error;
}

std::string Describe(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("'{}'", node.Scalar());
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  return "nothing";
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> NearestWord(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

YamlMap::YamlMap(YAML::Node node, std::string path, std::shared_ptr<Shared> shared)
    : node_(std::move(node)), path_(std::move(path)), shared_(std::move(shared)) {}

Result<YamlMap> YamlMap::Parse(std::string_view text, std::string file) {
  auto shared = std::make_shared<Shared>();
  shared->file = std::move(file);
  try {
    YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsDefined() || root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
    if (!root.IsMap()) {
      return tl::unexpected(
          ErrorAt(root.Mark(), shared->file,
                  fmt::format("found {} where a mapping (key: value) is expected", Describe(root))));
    }
    YamlMap map(root, "", shared);
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (!seen.insert(key).second)
        shared->errors.push_back(
            ErrorAt(entry.first.Mark(), shared->file, fmt::format("'{}' is set twice", key)));
    }
    return map;
  } catch (const YAML::Exception& e) {
    return tl::unexpected(ErrorAt(e.mark, shared->file, fmt::format("not valid YAML: {}", e.msg)));
  }
}

std::string YamlMap::PathOf(std::string_view key) const { return fmt::format("{}{}", path_, key); }

YAML::Node YamlMap::Find(std::string_view key) const {
  for (const auto& entry : node_) {
    if (entry.first.IsScalar() && entry.first.Scalar() == key) return entry.second;
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

bool YamlMap::Has(std::string_view key) const {
  const YAML::Node child = Find(key);
  return child.IsDefined() && !child.IsNull();
}

void YamlMap::AddError(std::string_view key, std::string message, std::string hint) {
  const YAML::Node child = Find(key);
  auto error = ErrorAt(child.IsDefined() ? child.Mark() : node_.Mark(), shared_->file,
                       fmt::format("{}: {}", PathOf(key), message));
  error.hint = std::move(hint);
  shared_->errors.push_back(std::move(error));
}

YamlMap YamlMap::Child(std::string_view key) {
  known_.emplace(key);
  YAML::Node child = Find(key);
  if (child.IsDefined() && !child.IsNull() && !child.IsMap()) {
    AddError(key, fmt::format("found {} where a mapping (key: value) is expected", Describe(child)));
  }
  const bool usable = child.IsDefined() && child.IsMap();
  return {usable ? child : YAML::Node(YAML::NodeType::Map), PathOf(key) + ".", shared_};
}

YAML::Node YamlMap::Scalar(std::string_view key, std::string_view expected) {
  known_.emplace(key);
  if (!Has(key)) return YAML::Node(YAML::NodeType::Undefined);
  YAML::Node child = Find(key);
  if (!child.IsScalar()) {
    AddError(key, fmt::format("found {} where {} is expected", Describe(child), expected));
    return YAML::Node(YAML::NodeType::Undefined);
  }
  return child;
}

std::optional<std::string> YamlMap::String(std::string_view key) {
  const auto node = Scalar(key, "text");
  if (!node.IsDefined()) return std::nullopt;
  return node.Scalar();
}

std::optional<bool> YamlMap::Bool(std::string_view key) {
  const auto node = Scalar(key, "true or false");
  if (!node.IsDefined()) return std::nullopt;
  if (node.Scalar() == "true") return true;
  if (node.Scalar() == "false") return false;
  AddError(key, fmt::format("found {} where true or false is expected", Describe(node)));
  return std::nullopt;
}

std::optional<int64_t> YamlMap::Int(std::string_view key, int64_t min, int64_t max) {
  const auto node = Scalar(key, "a whole number");
  if (!node.IsDefined()) return std::nullopt;
  const auto value = ParseNumber<int64_t>(node.Scalar());
  if (value && *value >= min && *value <= max) return value;
  AddError(key,
           fmt::format("found {} where a whole number from {} to {} is expected", Describe(node), min, max));
  return std::nullopt;
}

std::optional<double> YamlMap::Double(std::string_view key, double min, double max) {
  const auto node = Scalar(key, "a number");
  if (!node.IsDefined()) return std::nullopt;
  const auto value = ParseNumber<double>(node.Scalar());
  if (value && std::isfinite(*value) && *value >= min && *value <= max) return value;
  AddError(key, fmt::format("found {} where a number from {} to {} is expected", Describe(node), min, max));
  return std::nullopt;
}

std::optional<std::string> YamlMap::Choice(std::string_view key, const std::vector<std::string>& allowed) {
  const auto value = String(key);
  if (!value) return std::nullopt;
  if (std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return value;
  const auto nearest = NearestWord(*value, allowed);
  AddError(key, fmt::format("found '{}'; allowed: {}", *value, fmt::join(allowed, ", ")),
           nearest ? fmt::format("did you mean '{}'?", *nearest) : "");
  return std::nullopt;
}

std::optional<std::vector<std::string>> YamlMap::StringList(std::string_view key) {
  known_.emplace(key);
  if (!Has(key)) return std::nullopt;
  const YAML::Node child = Find(key);
  if (!child.IsSequence()) {
    AddError(key, fmt::format("found {} where a list is expected", Describe(child)));
    return std::nullopt;
  }
  std::vector<std::string> out;
  for (const auto& item : child) {
    if (!item.IsScalar()) {
      AddError(key, fmt::format("found {} in the list where text is expected", Describe(item)));
      return std::nullopt;
    }
    out.push_back(item.Scalar());
  }
  return out;
}

std::optional<int64_t> YamlMap::DurationMs(std::string_view key) {
  const auto node = Scalar(key, "a duration");
  if (!node.IsDefined()) return std::nullopt;
  std::string_view text = node.Scalar();
  double unit = 1000;
  if (text.ends_with("ms")) {
    unit = 1;
    text.remove_suffix(2);
  } else if (text.ends_with('s')) {
    text.remove_suffix(1);
  } else if (text.ends_with('m')) {
    unit = 60e3;
    text.remove_suffix(1);
  } else if (text.ends_with('h')) {
    unit = 3600e3;
    text.remove_suffix(1);
  } else if (text.ends_with('d')) {
    unit = 86400e3;
    text.remove_suffix(1);
  }
  const auto value = ParseNumber<double>(text);
  if (value && std::isfinite(*value) && *value >= 0 && *value * unit <= 3650.0 * 86400e3) {
    return static_cast<int64_t>(std::llround(*value * unit));
  }
  AddError(key, fmt::format("found {} where a duration like 500ms, 90s, 15m, 2h or 1d is expected",
                            Describe(node)));
  return std::nullopt;
}

void YamlMap::Finish() {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : Describe(entry.first);
    if (known_.contains(key)) continue;
    auto error = ErrorAt(entry.first.Mark(), shared_->file, fmt::format("{}: unknown key", PathOf(key)));
    const auto nearest = NearestWord(key, known);
    error.hint = nearest ? fmt::format("did you mean '{}'?", *nearest)
                         : fmt::format("allowed here: {}", fmt::join(known, ", "));
    shared_->errors.push_back(std::move(error));
  }
}

std::vector<Error> YamlMap::Errors() const {
  auto errors = shared_->errors;
  std::stable_sort(errors.begin(), errors.end(), [](const Error& a, const Error& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return errors;
}

Result<std::string> YamlSet(std::string_view text, std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Fail(ErrorCode::kInvalidArgument, "--set {}: PATH=VALUE is expected, such as train.epochs=10",
                assignment);
  }
  try {
    YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsDefined() || root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
    YAML::Node node = root;
    std::string_view path = assignment.substr(0, equals);
    while (true) {
      if (!node.IsMap())
        return Fail(ErrorCode::kInvalidArgument, "--set {}: goes through {}, not a mapping", assignment,
                    Describe(node));
      const auto dot = path.find('.');
      const std::string key(path.substr(0, dot));
      if (key.empty())
        return Fail(ErrorCode::kInvalidArgument, "--set {}: an empty name in the path", assignment);
      if (dot == std::string_view::npos) {
        node[key] = YAML::Load(std::string(assignment.substr(equals + 1)));
        break;
      }
      if (!node[key].IsDefined() || node[key].IsNull()) node[key] = YAML::Node(YAML::NodeType::Map);
      YAML::Node next = node[key];
      node.reset(next);
      path.remove_prefix(dot + 1);
    }
    return YAML::Dump(root) + "\n";
  } catch (const YAML::Exception& e) {
    return Fail(ErrorCode::kInvalidArgument, "--set {}: {}", assignment, e.msg);
  }
}

}  // namespace imgd
