#include "common/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "common/utf8.h"
#include "common/yaml_text.h"

namespace imgd {

struct YamlMap::Shared {
  std::string file;
  std::vector<Error> errors;
  size_t more = 0;  ///< that are not among them

  bool IsFull() const { return errors.size() >= kMostErrors; }
  void Add(Error error) {
    if (IsFull()) {
      ++more;
    } else {
      errors.push_back(std::move(error));
    }
  }
};

namespace {

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

bool IsWordForNull(std::string_view text) {
  return text == "~" || text == "null" || text == "Null" || text == "NULL";
}

/// Letters that are missing, too many, wrong, or swapped with the next one (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // two rows above
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
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
    // Of which half of the letters are not there is another word.
    const size_t shared = std::max(word.size(), candidate.size()) - distance;
    if (distance < best_distance && 2 * shared > candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

YamlMap::YamlMap(const YAML::Node& node, std::string path, std::shared_ptr<Shared> shared)
    : node_(node), path_(std::move(path)), shared_(std::move(shared)) {
  for (const auto& entry : node_) {
    if (entry.first.IsScalar()) fields_.emplace_back(entry.first.Scalar(), entry.second);
  }
}

Result<YamlMap> YamlMap::Parse(std::string_view text, std::string file) {
  auto shared = std::make_shared<Shared>();
  shared->file = std::move(file);
  IMGD_ASSIGN(const YAML::Node root, LoadYaml(text, shared->file));
  return Outermost(root, shared);
}

Result<YamlMap> YamlMap::Of(const YamlEditor& editor, std::string file) {
  auto shared = std::make_shared<Shared>();
  shared->file = std::move(file);
  return Outermost(editor.root_, shared);
}

Result<YamlMap> YamlMap::Outermost(YAML::Node root, const std::shared_ptr<Shared>& shared) {
  if (!root.IsDefined() || root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
  if (!root.IsMap()) {
    return tl::unexpected(
        ErrorAt(root.Mark(), shared->file,
                fmt::format("found {} where a mapping (key: value) is expected", Describe(root))));
  }
  YamlMap map(root, "", shared);
  for (auto& error : FindKeysSetTwice(root, shared->file)) shared->Add(std::move(error));
  return map;
}

std::string YamlMap::PathOf(std::string_view key) const { return fmt::format("{}{}", path_, key); }

const YAML::Node* YamlMap::Find(std::string_view key) const {
  for (const auto& [name, value] : fields_) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool YamlMap::Has(std::string_view key) const {
  known_.emplace(key);
  const YAML::Node* child = Find(key);
  return child != nullptr && !child->IsNull();
}

bool YamlMap::IsMap(std::string_view key) const {
  const YAML::Node* child = Find(key);
  return child != nullptr && child->IsMap();
}

bool YamlMap::IsList(std::string_view key) const {
  const YAML::Node* child = Find(key);
  return child != nullptr && child->IsSequence();
}

void YamlMap::AddError(std::string_view key, std::string message, std::string hint) {
  const YAML::Node* child = Find(key);
  auto error = ErrorAt(child != nullptr ? child->Mark() : node_.Mark(), shared_->file,
                       fmt::format("{}: {}", PathOf(key), message));
  error.hint = std::move(hint);
  shared_->Add(std::move(error));
}

YamlMap YamlMap::Child(std::string_view key) {
  known_.emplace(key);
  const YAML::Node* child = Find(key);
  if (child != nullptr && !child->IsNull() && !child->IsMap()) {
    AddError(key, fmt::format("found {} where a mapping (key: value) is expected", Describe(*child)));
  }
  const bool usable = child != nullptr && child->IsMap();
  return {usable ? *child : YAML::Node(), PathOf(key) + ".", shared_};
}

size_t YamlMap::ItemsOf(std::string_view key) const {
  known_.emplace(key);
  const YAML::Node* child = Find(key);
  return child == nullptr || child->IsNull() ? 0 : child->IsSequence() ? child->size() : 1;
}

std::vector<YamlMap> YamlMap::Children(std::string_view key) {
  known_.emplace(key);
  if (!Has(key)) return {};
  const YAML::Node& list = *Find(key);
  if (!list.IsSequence()) {
    AddError(key, fmt::format("found {} where a list is expected", Describe(list)));
    return {};
  }
  std::vector<YamlMap> out;
  for (const auto& item : list) {
    if (!item.IsMap()) {
      AddError(key,
               fmt::format("found {} in the list where a mapping (key: value) is expected", Describe(item)));
      return {};
    }
    out.push_back({item, fmt::format("{}[{}].", PathOf(key), out.size()), shared_});
  }
  return out;
}

std::vector<YamlMap> YamlMap::Children(std::string_view key, const std::string& short_for) {
  known_.emplace(key);
  if (!Has(key)) return {};
  const YAML::Node& found = *Find(key);
  std::vector<YamlMap> out;
  const auto add = [&](const YAML::Node& item) {
    if (!item.IsMap() && !item.IsScalar()) {
      AddError(key, fmt::format("found {} where text or a mapping (key: value) is expected", Describe(item)));
      return false;
    }
    out.push_back({item, fmt::format("{}[{}].", PathOf(key), out.size()), shared_});
    // Not by a mapping of YAML's: each would have all nodes of the file.
    if (item.IsScalar()) out.back().fields_.emplace_back(short_for, item);
    return true;
  };
  if (!found.IsSequence()) {
    if (!add(found)) return {};
    return out;
  }
  for (const auto& item : found) {
    if (!add(item)) return {};
  }
  return out;
}

const YAML::Node* YamlMap::Scalar(std::string_view key, std::string_view expected) {
  known_.emplace(key);
  if (!Has(key)) return nullptr;
  const YAML::Node* child = Find(key);
  if (child->IsScalar()) return child;
  AddError(key, fmt::format("found {} where {} is expected", Describe(*child), expected));
  return nullptr;
}

std::optional<std::string> YamlMap::String(std::string_view key) {
  const YAML::Node* node = Scalar(key, "text");
  if (node == nullptr) return std::nullopt;
  return node->Scalar();
}

std::optional<bool> YamlMap::Bool(std::string_view key) {
  const YAML::Node* node = Scalar(key, "true or false");
  if (node == nullptr) return std::nullopt;
  if (node->Scalar() == "true") return true;
  if (node->Scalar() == "false") return false;
  AddError(key, fmt::format("found {} where true or false is expected", Describe(*node)));
  return std::nullopt;
}

std::optional<int64_t> YamlMap::Int(std::string_view key, int64_t min, int64_t max) {
  const YAML::Node* node = Scalar(key, "a whole number");
  if (node == nullptr) return std::nullopt;
  const auto value = ParseNumber<int64_t>(node->Scalar());
  if (value && *value >= min && *value <= max) return value;
  AddError(key,
           fmt::format("found {} where a whole number from {} to {} is expected", Describe(*node), min, max));
  return std::nullopt;
}

std::optional<double> YamlMap::Double(std::string_view key, double min, double max) {
  const YAML::Node* node = Scalar(key, "a number");
  if (node == nullptr) return std::nullopt;
  const auto value = ParseNumber<double>(node->Scalar());
  if (value && std::isfinite(*value) && *value >= min && *value <= max) return value;
  AddError(key, fmt::format("found {} where a number from {} to {} is expected", Describe(*node), min, max));
  return std::nullopt;
}

std::optional<std::string> YamlMap::Choice(std::string_view key, const std::vector<std::string>& allowed) {
  auto value = String(key);
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
  const YAML::Node& child = *Find(key);
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

std::optional<std::vector<double>> YamlMap::Doubles(std::string_view key, double min, double max) {
  const auto words = StringList(key);
  if (!words) return std::nullopt;
  std::vector<double> out;
  for (const auto& word : *words) {
    const auto value = ParseNumber<double>(word);
    if (!value || !std::isfinite(*value) || *value < min || *value > max) {
      AddError(key, fmt::format("found '{}' in the list where a number from {} to {} is expected", word, min,
                                max));
      return std::nullopt;
    }
    out.push_back(*value);
  }
  return out;
}

namespace {

std::string OnOneLine(const YAML::Node& node) {
  YAML::Node copy = YAML::Clone(node);
  const auto flow = [](auto&& self, YAML::Node at) -> void {
    if (!at.IsMap() && !at.IsSequence()) return;
    at.SetStyle(YAML::EmitterStyle::Flow);
    for (const auto& item : at) self(self, at.IsMap() ? item.second : YAML::Node(item));
  };
  flow(flow, copy);
  return YAML::Dump(copy);
}

}  // namespace

std::optional<std::string> YamlMap::Value(std::string_view key) {
  known_.emplace(key);
  if (Find(key) == nullptr) return std::nullopt;
  return OnOneLine(*Find(key));
}

std::optional<std::vector<std::string>> YamlMap::Values(std::string_view key) {
  known_.emplace(key);
  if (!Has(key)) return std::nullopt;
  const YAML::Node& child = *Find(key);
  if (!child.IsSequence() || child.size() == 0) {
    AddError(key, fmt::format("found {} where a list of values is expected",
                              child.IsSequence() ? "an empty list" : Describe(child)));
    return std::nullopt;
  }
  std::vector<std::string> out;
  for (const auto& item : child) out.push_back(OnOneLine(item));
  return out;
}

std::optional<int64_t> YamlMap::DurationMs(std::string_view key) {
  const YAML::Node* node = Scalar(key, "a duration");
  if (node == nullptr) return std::nullopt;
  std::string_view text = node->Scalar();
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
  constexpr double kMostDays = 3650;
  const auto value = ParseNumber<double>(text);
  if (value && std::isfinite(*value) && *value >= 0) {
    if (*value * unit <= kMostDays * 86400e3) return static_cast<int64_t>(std::llround(*value * unit));
    AddError(key, fmt::format("found {}; at most {}d is allowed", Describe(*node), kMostDays));
    return std::nullopt;
  }
  AddError(key, fmt::format("found {} where a duration like 500ms, 90s, 15m, 2h or 1d is expected",
                            Describe(*node)));
  return std::nullopt;
}

std::optional<int64_t> YamlMap::DurationWithUnitMs(std::string_view key) {
  const auto ms = DurationMs(key);
  if (!ms || *ms == 0 || std::isalpha(static_cast<unsigned char>(Find(key)->Scalar().back()))) return ms;
  AddError(key, fmt::format("found {} where a duration with its unit is expected, such as 12h or 30d",
                            Describe(*Find(key))));
  return std::nullopt;
}

std::vector<std::string> YamlMap::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [name, value] : fields_) keys.push_back(name);
  return keys;
}

void YamlMap::Finish(std::string_view elsewhere) {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : Describe(entry.first);
    if (known_.contains(key)) continue;
    if (shared_->IsFull()) {
      ++shared_->more;
      continue;
    }
    auto error = ErrorAt(entry.first.Mark(), shared_->file, fmt::format("{}: unknown key", PathOf(key)));
    const auto nearest = NearestWord(key, known);
    error.hint = nearest ? fmt::format("did you mean '{}'?", *nearest)
                         : fmt::format("allowed here: {}", fmt::join(known, ", "));
    if (!nearest && !elsewhere.empty()) error.hint += fmt::format("; {}", elsewhere);
    shared_->Add(std::move(error));
  }
}

std::vector<Error> YamlMap::Errors() const {
  auto errors = InFileOrder(shared_->errors);
  if (shared_->more > 0) {
    errors.push_back({.code = ErrorCode::kInvalidArgument,
                      .message = fmt::format("there are {} more errors", shared_->more),
                      .file = shared_->file});
  }
  return errors;
}

std::vector<Error> InFileOrder(std::vector<Error> errors) {
  std::stable_sort(errors.begin(), errors.end(), [](const Error& a, const Error& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return errors;
}

namespace {

/// What a part of a path names: the value of a key, or the item of a list by its number from 0.
Result<YAML::Node> ItemOf(YAML::Node node, const std::string& key) {
  if (node.IsMap()) return YAML::Node(node[key]);
  if (!node.IsSequence())
    return Fail(ErrorCode::kInvalidArgument, "goes through {}, not a mapping", Describe(node));
  size_t number = 0;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == key.data() + key.size() && number < node.size())
    return YAML::Node(node[number]);
  return Fail(ErrorCode::kInvalidArgument, "'{}' is no item of a list of {}, which are numbered from 0", key,
              node.size());
}

}  // namespace

Result<YamlEditor> YamlEditor::Parse(std::string_view text) {
  IMGD_ASSIGN(YAML::Node root, LoadYaml(text, ""));
  if (!root.IsDefined() || root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
  return YamlEditor(root);
}

Status YamlEditor::Set(std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Fail(ErrorCode::kInvalidArgument, "PATH=VALUE is expected, such as train.epochs=10");
  }
  if (FindInvalidUtf8(assignment)) return Fail(ErrorCode::kInvalidArgument, "found bytes that are no UTF-8");
  try {
    YAML::Node node = root_;
    std::string_view path = assignment.substr(0, equals);
    while (true) {
      const auto dot = path.find('.');
      const std::string key(path.substr(0, dot));
      if (key.empty()) return Fail(ErrorCode::kInvalidArgument, "an empty name in the path");
      IMGD_ASSIGN(YAML::Node item, ItemOf(node, key));
      if (dot == std::string_view::npos) {
        const YAML::Node value = YAML::Load(std::string(assignment.substr(equals + 1)));
        // Nothing is no null: it would be taken for a field that is left out, and the default for what was
        // set.
        item = value.IsNull() && !IsWordForNull(assignment.substr(equals + 1)) ? YAML::Node("") : value;
        return {};
      }
      if (!item.IsDefined() || item.IsNull()) item = YAML::Node(YAML::NodeType::Map);
      node.reset(item);
      path.remove_prefix(dot + 1);
    }
  } catch (const YAML::Exception& e) {
    return Fail(ErrorCode::kInvalidArgument, "not valid YAML: {}", e.msg);
  }
}

Result<std::string> YamlSet(std::string_view text, std::string_view assignment) {
  IMGD_ASSIGN(YamlEditor editor, YamlEditor::Parse(text));
  IMGD_TRY(editor.Set(assignment));
  return editor.Text();
}

}  // namespace imgd
