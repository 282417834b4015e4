#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"

namespace imgd {

class YamlEditor;

/// A YAML mapping that is read field by field, and knows where each field stands.
///
/// Collects every error instead of stopping at the first; unknown keys are errors, with the nearest known key
/// as a hint. Use: read each field, then call Finish() on every mapping; see common/job_file.cc.
class YamlMap {
 public:
  /// Parses `text`; `file` names it in errors. An empty document is an empty mapping.
  /// Errors: kInvalidArgument with line and column where the YAML itself is malformed, is not a mapping, is
  /// not UTF-8, or where a second document begins.
  static Result<YamlMap> Parse(std::string_view text, std::string file);
  /// What an editor has by now, without reading its text again; errors have no lines.
  static Result<YamlMap> Of(const YamlEditor& editor, std::string file);

  /// The mapping below `key`; an empty one when it is absent. Its errors are this one's.
  YamlMap Child(std::string_view key);

  /// The mappings of the list below `key`; none when it is absent or no list of mappings. Their errors are
  /// this one's.
  std::vector<YamlMap> Children(std::string_view key);
  /// The same, where an item that is plain text stands for a mapping with only this key; and where one item
  /// alone, without a list, stands for a list of one.
  std::vector<YamlMap> Children(std::string_view key, const std::string& short_for);

  /// The field, if it is there and well formed. Range errors name the range.
  std::optional<std::string> String(std::string_view key);
  std::optional<bool> Bool(std::string_view key);
  std::optional<int64_t> Int(std::string_view key, int64_t min, int64_t max);
  std::optional<double> Double(std::string_view key, double min, double max);
  std::optional<std::string> Choice(std::string_view key, const std::vector<std::string>& allowed);
  std::optional<std::vector<std::string>> StringList(std::string_view key);
  std::optional<std::vector<double>> Doubles(std::string_view key, double min, double max);
  /// What stands there, or each item of the list there, as YAML on one line: whatever it is.
  std::optional<std::string> Value(std::string_view key);
  std::optional<std::vector<std::string>> Values(std::string_view key);

  /// "90s", "15m", "2h", or a bare number of seconds. In milliseconds.
  std::optional<int64_t> DurationMs(std::string_view key);
  /// The same, with its unit but for 0: where seconds in the place of days would lose something.
  std::optional<int64_t> DurationWithUnitMs(std::string_view key);

  /// A key that was asked about is known, also where it is absent and nothing reads it.
  bool Has(std::string_view key) const;
  bool IsMap(std::string_view key) const;
  bool IsList(std::string_view key) const;
  /// How many items Children() finds there, which costs memory for each.
  size_t ItemsOf(std::string_view key) const;
  /// The keys that it has, in the order of the file; for mappings with names of somebody else's.
  std::vector<std::string> Keys() const;

  /// Adds an error at the field (or at the mapping, where the field is absent).
  void AddError(std::string_view key, std::string message, std::string hint = "");

  /// Reports keys that nobody asked for. Call once, after all fields were read. `elsewhere` is added where
  /// such a key is like none of those: what may have been meant.
  void Finish(std::string_view elsewhere = "");

  /// All errors of this mapping and its children, in the order of the file; of many kMostErrors, and how many
  /// more there are.
  std::vector<Error> Errors() const;

 private:
  struct Shared;
  YamlMap(const YAML::Node& node, std::string path, std::shared_ptr<Shared> shared);
  static Result<YamlMap> Outermost(YAML::Node root, const std::shared_ptr<Shared>& shared);
  /// What stands there; nullptr when the key is absent. It lives as long as this mapping.
  const YAML::Node* Find(std::string_view key) const;
  /// The same, if it is a scalar; else notes the error. An absent field and a null are no scalars and no
  /// errors.
  const YAML::Node* Scalar(std::string_view key, std::string_view expected);
  std::string PathOf(std::string_view key) const;

  YAML::Node node_;
  /// Its fields by key. Going through a YAML::Node takes several allocations for each.
  std::vector<std::pair<std::string, YAML::Node>> fields_;
  std::string path_;  ///< "train.": prefix of this mapping's keys
  mutable std::set<std::string, std::less<>> known_;
  std::shared_ptr<Shared> shared_;
};

/// The candidate nearest to `word` by edit distance, if it is near enough to be meant.
std::optional<std::string> NearestWord(std::string_view word, const std::vector<std::string>& candidates);

/// By where they are in their file; those of one place stay as they are.
std::vector<Error> InFileOrder(std::vector<Error> errors);

/// A YAML text that is changed field by field.
class YamlEditor {
 public:
  /// Errors: kInvalidArgument for what is no YAML.
  static Result<YamlEditor> Parse(std::string_view text);
  YamlEditor Copy() const { return YamlEditor(YAML::Clone(root_)); }
  /// As YamlSet().
  Status Set(std::string_view assignment);
  /// Takes out a key of the outermost mapping.
  void Remove(const std::string& key) { root_.remove(key); }
  std::string Text() const { return YAML::Dump(root_) + "\n"; }

 private:
  friend class YamlMap;
  explicit YamlEditor(const YAML::Node& root) : root_(root) {}
  YAML::Node root_;
};

/// Sets `path` ("train.epochs") to `value` (YAML; nothing is the empty text) in `text` and returns the new
/// text. Errors: kInvalidArgument when `assignment` is not PATH=VALUE or goes through something that is not a
/// mapping; they don't name the assignment.
Result<std::string> YamlSet(std::string_view text, std::string_view assignment);

}  // namespace imgd
