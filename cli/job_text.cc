#include "cli/job_text.h"

#include <algorithm>
#include <iterator>

#include "common/files.h"
#include "common/job_file.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr size_t kMostBytes = 1 << 20;

Reply<std::string> ReadText(const std::string& file, std::istream& in) {
  std::string text;
  if (file == "-") {
    text.assign(std::istreambuf_iterator<char>(in), {});
  } else {
    auto content = ReadFile(file);
    if (!content) return tl::unexpected(Errors{std::move(content).error()});
    text = std::move(*content);
  }
  if (text.size() > kMostBytes) {
    return tl::unexpected(
        Errors{Error{.code = ErrorCode::kInvalidArgument,
                     .message = fmt::format("found {} bytes where a job file of at most {} is "
                                            "expected",
                                            text.size(), kMostBytes),
                     .file = file}});
  }
  return text;
}

/// A job runs in a folder of its own on another machine, where a relative path names nothing.
Errors CheckDataPaths(const std::string& text, const JobSpec& spec, const std::string& file) {
  auto root = YamlMap::Parse(text, file);
  if (!root) return {root.error()};
  auto data = root->Child("data");
  const auto check = [&](const char* key, const std::string& path) {
    if (path.empty() || path.front() == '/' || path.find("://") != std::string::npos) return;
    data.AddError(key, fmt::format("'{}' is relative; nodes need an absolute path", path));
  };
  check("train", spec.data.train);
  check("val", spec.data.val);
  return data.Errors();
}

Errors CheckText(const std::string& text, const std::string& file) {
  const auto spec = ParseJobFile(text, file);
  return spec ? CheckDataPaths(text, *spec, file) : spec.error();
}

/// Where the field (or the nearest mapping around it) stands in the text.
void FindPlace(const std::string& text, std::string_view field, Error& error) {
  YAML::Node node = YAML::Load(text);
  while (node.IsMap()) {
    if (!node.Mark().is_null()) {
      error.line = node.Mark().line + 1;
      error.column = node.Mark().column + 1;
    }
    const auto dot = field.find('.');
    YAML::Node next = node[std::string(field.substr(0, dot))];
    if (!next.IsDefined()) return;
    error.line = next.Mark().line + 1;
    error.column = next.Mark().column + 1;
    if (dot == std::string_view::npos) return;
    field.remove_prefix(dot + 1);
    node.reset(next);
  }
}

bool IsPrefix(std::string_view outer, std::string_view inner) {
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
}

/// Errors of the changed text, told in terms of what the user wrote: the file and the assignments.
Errors Relocate(Errors errors, const std::string& original, const std::vector<std::string>& sets,
                const std::string& file) {
  for (auto& error : errors) {
    const std::string field = error.message.substr(0, error.message.find(": "));
    const auto set = std::find_if(sets.rbegin(), sets.rend(), [&](const std::string& assignment) {
      const auto path = std::string_view(assignment).substr(0, assignment.find('='));
      return IsPrefix(path, field) || IsPrefix(field, path);
    });
    error.line = error.column = 0;
    if (set != sets.rend()) {
      error.file = fmt::format("--set {}", *set);
    } else {
      error.file = file;
      FindPlace(original, field, error);
    }
  }
  return errors;
}

}  // namespace

Reply<JobText> ReadJobText(const std::string& file, std::istream& in, const std::vector<std::string>& sets,
                           const std::string& name) {
  auto read = ReadText(file, in);
  if (!read) return tl::unexpected(std::move(read).error());
  const std::string& original = *read;
  JobText text{.yaml = original, .file = file == "-" ? "stdin" : file};
  if (sets.empty() && name.empty()) {
    if (auto errors = CheckText(text.yaml, text.file); !errors.empty())
      return tl::unexpected(std::move(errors));
    return text;
  }

  // What is no mapping at all can't be changed; its place is in the file.
  if (auto root = YamlMap::Parse(original, text.file); !root) return tl::unexpected(Errors{root.error()});
  std::vector<std::string> changes = sets;
  if (!name.empty()) changes.push_back(fmt::format("name={}", name));
  for (const auto& change : changes) {
    auto changed = YamlSet(text.yaml, change);
    if (!changed) return tl::unexpected(Errors{std::move(changed).error()});
    text.yaml = std::move(*changed);
  }
  if (auto errors = CheckText(text.yaml, text.file); !errors.empty()) {
    return tl::unexpected(Relocate(std::move(errors), original, changes, text.file));
  }
  // The daemon's line numbers would be those of the changed text.
  text.file += " (with --set)";
  return text;
}

}  // namespace imgd::cli
