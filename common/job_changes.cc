#include "common/job_changes.h"

#include <algorithm>

#include "common/utf8.h"
#include "common/yaml.h"

namespace imgd {
namespace {

/// Where the field (or the nearest mapping around it) stands in the text.
void FindPlace(const YAML::Node& node, std::string_view field, Error& error) {
  if (!node.IsMap()) return;
  const auto is_here = [&error](const YAML::Mark& mark) {
    error.line = mark.line + 1;
    error.column = mark.column + 1;
  };
  if (!node.Mark().is_null()) is_here(node.Mark());
  const auto dot = field.find('.');
  const YAML::Node next = node[std::string(field.substr(0, dot))];  // of a const one nothing is added
  if (!next.IsDefined()) return;
  is_here(next.Mark());
  if (dot != std::string_view::npos) FindPlace(next, field.substr(dot + 1), error);
}

bool IsPrefix(std::string_view outer, std::string_view inner) {
  return inner.starts_with(outer) &&
         (inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[');
}

}  // namespace

std::vector<JobChange> JobChangesOf(const std::vector<std::string>& sets) {
  std::vector<JobChange> changes;
  for (const auto& set : sets) changes.push_back({.assignment = set, .shown = fmt::format("--set {}", set)});
  return changes;
}

Result<std::string> ChangeJobText(std::string_view text, const std::string& file,
                                  const std::vector<JobChange>& changes) {
  std::string changed(text);
  if (changes.empty()) return changed;
  // What is no mapping at all can't be changed; its place is in the file.
  if (auto root = YamlMap::Parse(text, file); !root) return tl::unexpected(std::move(root).error());
  for (const auto& change : changes) {
    auto next = YamlSet(changed, change.assignment);
    if (!next) {
      Error error = std::move(next).error();
      error.file = ToUtf8(change.shown);
      return tl::unexpected(std::move(error));
    }
    changed = std::move(*next);
  }
  return changed;
}

std::vector<Error> PlaceJobErrors(std::vector<Error> errors, std::string_view original,
                                  const std::string& file, const std::vector<JobChange>& changes) {
  const YAML::Node root = YAML::Load(std::string(original));
  for (auto& error : errors) {
    const std::string field = error.message.substr(0, error.message.find(": "));
    const auto change = std::find_if(changes.rbegin(), changes.rend(), [&](const JobChange& candidate) {
      const auto path = std::string_view(candidate.assignment).substr(0, candidate.assignment.find('='));
      return IsPrefix(path, field) || IsPrefix(field, path);
    });
    error.line = error.column = 0;
    if (change != changes.rend()) {
      error.file = change->shown;
    } else {
      error.file = file;
      FindPlace(root, field, error);
    }
  }
  return errors;
}

tl::expected<JobSpec, std::vector<Error>> ParseChangedJobFile(std::string_view text, const std::string& file,
                                                              const std::vector<std::string>& sets) {
  if (sets.empty()) return ParseJobFile(text, file);
  const auto changes = JobChangesOf(sets);
  auto changed = ChangeJobText(text, file, changes);
  if (!changed) return tl::unexpected(std::vector<Error>{std::move(changed).error()});
  auto spec = ParseJobFile(*changed, file);
  if (spec) return spec;
  return tl::unexpected(PlaceJobErrors(std::move(spec).error(), text, file, changes));
}

}  // namespace imgd
